"""`agop bench composite`."""

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
    Untrained,
    check_files,
    compute,
    processes,
    select,
    select_methods,
)
from agop.cli.stopping import stoppable


@stoppable("finished cells stay in {out}: run again (without --fresh) to resume")
def composite(
    out: Out = Path("runs/composite"),
    seeds: Annotated[int, typer.Option(help="Trainings per scenario.")] = 3,
    scenario: Annotated[Names, typer.Option(help="composite or composite-still; both by default.")] = None,
    digits: Annotated[
        Path | None, typer.Option(help="MNIST's idx files: their folder, or one file of images. Default: drawn digits.")
    ] = None,
    photos: Annotated[
        Path | None,
        typer.Option(help="Photographs: a folder of images, an .npz, or CIFAR-10's folder. Default: pink noise."),
    ] = None,
    size: Annotated[int, typer.Option(help="Side of the images: 32 or 64.")] = 32,
    samples: Annotated[int | None, typer.Option(help="Number of images in all splits.")] = None,
    method: Method = None,
    metric: Metric = None,
    restarts: Restarts = 5,
    jobs: Jobs = None,
    quick: Annotated[bool, typer.Option("--quick", help="400 images, 1 epoch, 20 test images: a smoke test.")] = False,
    untrained: Untrained = False,
    fresh: Fresh = False,
    force: Force = False,
) -> None:
    """Train, explain and score digits on photographs, where the mask is the digit."""
    from agop import metrics, scenarios
    from agop.bench.code import code_of
    from agop.runs.spec import RunSpec
    from agop.scenarios.composite import Options

    tasks = select("scenario", scenario, scenarios.names("composite"))
    files = {name: str(path.resolve()) for name, path in (("digits", digits), ("photos", photos)) if path is not None}
    samples = samples if samples is not None else 400 if quick else Options.samples
    options = Options(**files, size=size, samples=samples)
    selected = select_methods(method)
    spec = RunSpec(
        benchmark="composite",
        scenarios=tasks,
        backgrounds=("pink-noise" if photos is None else "photos",),
        seeds=seeds,
        methods=selected,
        metrics=select("metric", metric, metrics.names(), metrics.default_names()),
        masks="own",
        epochs=0 if untrained else 1 if quick else scenarios.get(tasks[0]).recipe.epochs,
        test_images=20 if quick else 300,
        steps=8,
        # Only options that differ from the default: the specification stays readable.
        options={name: value for name, value in vars(options).items() if value != getattr(Options, name)},
        restarts=None if quick or untrained else restarts,
        code=code_of(selected),
    )
    check_files(spec)
    compute(spec, out, processes(jobs), fresh, force, _notes(digits, photos))


def _notes(digits: Path | None, photos: Path | None) -> list[str]:
    """Notes on the stand-ins for missing files."""
    drawn = ["without --digits, digits are drawn in Pillow's font"] if digits is None else []
    noise = ["without --photos, pink noise is used instead of photographs"] if photos is None else []
    return drawn + noise
