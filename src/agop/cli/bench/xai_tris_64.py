"""`agop bench xai-tris-64`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli.bench.common import (
    Force,
    Fresh,
    Jobs,
    Method,
    Metric,
    Names,
    Out,
    Restarts,
    check_files,
    compute,
    processes,
    select,
    select_methods,
)
from agop.cli.stopping import stoppable

_STAND_IN = "--background photos without --photos: pink noise is used instead of photographs"


@stoppable("finished cells stay in {out}: run again (without --fresh) to resume")
def xai_tris_64(
    out: Out = Path("runs/xai-tris-64"),
    seeds: Annotated[int, typer.Option(help="Trainings per scenario and background.")] = 3,
    scenario: Annotated[Names, typer.Option(help="Only this scenario: linear, xor …; repeatable.")] = None,
    background: Annotated[
        Names,
        typer.Option(help="white (default), correlated, photos (default with --photos), pink-noise; repeatable."),
    ] = None,
    photos: Annotated[
        Path | None, typer.Option(help="Photographs: a folder of images, an .npz, or CIFAR-10's folder.")
    ] = None,
    method: Method = None,
    metric: Metric = None,
    restarts: Restarts = 5,
    jobs: Jobs = None,
    quick: Annotated[bool, typer.Option("--quick", help="400 images, 1 epoch, 20 test images: a smoke test.")] = False,
    fresh: Fresh = False,
    force: Force = False,
) -> None:
    """Train, explain and score XAI-TRIS at 64×64: large tetrominoes in noise or on photographs."""
    from agop import metrics, scenarios
    from agop.bench.code import code_of
    from agop.runs.spec import RunSpec

    known = scenarios.names("xai-tris-64")
    tasks = select("scenario", [f"{name.removesuffix('-64')}-64" for name in scenario or ()], known)
    first = scenarios.get(tasks[0])
    backgrounds, notes = _backgrounds(background, photos, first.backgrounds)
    selected = select_methods(method)
    options = {"photos": None if photos is None else str(photos.resolve()), "samples": 400 if quick else None}
    spec = RunSpec(
        benchmark="xai-tris-64",
        scenarios=tasks,
        backgrounds=backgrounds,
        seeds=seeds,
        methods=selected,
        metrics=select("metric", metric, metrics.names(), metrics.default_names()),
        masks="own",
        epochs=1 if quick else first.recipe.epochs,
        test_images=20 if quick else 300,
        steps=8,
        options={name: value for name, value in options.items() if value is not None},
        restarts=None if quick else restarts,
        code=code_of(selected),
    )
    check_files(spec)
    compute(spec, out, processes(jobs), fresh, force, notes)


def _backgrounds(names: Names, photos: Path | None, known: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """The backgrounds, and a note if pink noise replaces missing photographs."""
    from agop.errors import InputError

    backgrounds = select("background", names, known, ["white" if photos is None else "photos"])
    if photos is not None and "photos" not in backgrounds:
        raise InputError(f"--photos {photos} isn't used: add --background photos, or remove --photos")
    if photos is None and "photos" in backgrounds:
        return tuple(dict.fromkeys(name.replace("photos", "pink-noise") for name in backgrounds)), [_STAND_IN]
    return backgrounds, []
