"""`agop bench clevr-xai`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agop.cli.bench.common import (
    Force,
    Fresh,
    Jobs,
    Method,
    Metric,
    Names,
    Out,
    compute,
    processes,
    select,
    select_methods,
)
from agop.cli.stopping import stoppable

if TYPE_CHECKING:
    from agop.runs.spec import RunSpec
    from agop.scenarios.clevr_xai import Options


@stoppable("finished cells stay in {out}: run again (without --fresh) to resume")
def clevr_xai(
    out: Out = Path("runs/clevr-xai"),
    data: Annotated[
        Path | None, typer.Option(help="The official files, unpacked or not. Without them, scenes are rendered.")
    ] = None,
    network: Annotated[str, typer.Option(help="resnet18, or efficientnet-lite0 with ImageNet weights.")] = "resnet18",
    weights: Annotated[Path | None, typer.Option(help="ImageNet weights for resnet18, a file of torchvision.")] = None,
    seeds: Annotated[int, typer.Option(help="Trainings. With one, intervals are over samples.")] = 1,
    method: Method = None,
    metric: Metric = None,
    jobs: Jobs = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's recipe: 50 epochs, Adam 1e-4, cosine.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="200 scenes, 1 epoch, 20 images: a smoke test.")] = False,
    fresh: Fresh = False,
    force: Force = False,
) -> None:
    """Train, explain and score the dominance task of CLEVR-XAI, then check each claim of the paper."""
    from agop.scenarios import get
    from agop.scenarios.clevr.cache import cache_folder
    from agop.scenarios.clevr.dataset import drawn_dataset
    from agop.scenarios.clevr.release.samples import read_release
    from agop.system.locks import file_lock

    options = _clevr_options(data, network, weights, full, quick)
    spec = _clevr_spec(options, seeds, method, metric, full, quick)
    get("clevr-xai").with_options(spec.options).network()  # raises now if a file or package is missing
    count = processes(jobs)
    notes = [] if data is None else [read_release(data).summary()]

    def draw() -> None:
        if data is None:
            # Of the ranks on one machine the first draws, the others find the scenes.
            with file_lock(cache_folder() / "clevr.lock"):
                drawn_dataset(options.samples, options.size, jobs=count)

    compute(spec, out, count, fresh, force, notes, draw)


def _clevr_options(data: Path | None, network: str, weights: Path | None, full: bool, quick: bool) -> Options:
    """The scenario's options, with a recipe for the size of the run and the initial weights."""
    from agop.errors import InputError
    from agop.scenarios.clevr_xai import Options

    if full and quick:
        raise InputError("--full and --quick exclude each other: give one of them")
    options = Options(
        data=None if data is None else str(data.resolve()),
        samples=200 if quick else Options.samples,
        network=network,
        weights=None if weights is None else str(weights.resolve()),
    )
    if weights is not None and not weights.is_file():
        raise InputError(f"weights {weights} is not a file: pass torchvision's resnet18-*.pth")
    return replace(options, recipe="paper" if full else "fine-tuning" if options.fine_tunes else "short")


def _clevr_spec(options: Options, seeds: int, method: Names, metric: Names, full: bool, quick: bool) -> RunSpec:
    """The specification: the paper's methods, variants and controls, and the baselines of integrated gradients."""
    from agop import metrics
    from agop.bench.code import code_of
    from agop.bench.entries import BASELINES
    from agop.runs.spec import RunSpec
    from agop.scenarios.clevr_xai import LAYERS, Options, clevr_xai

    variants = [f"gradcam@{LAYERS[options.network][1]}", "agop-weighted@training", "agop-global@training"]
    baselines = BASELINES if not method or "integrated-gradients" in method else ()
    selected = select_methods(method, variants)
    # Only options that differ from the default: the specification stays readable.
    changed = {name: value for name, value in vars(options).items() if value != getattr(Options, name)}
    return RunSpec(
        benchmark="clevr-xai",
        scenarios=("clevr-xai",),
        backgrounds=("drawn" if options.data is None else "official",),
        seeds=seeds,
        methods=selected,
        metrics=select("metric", metric, metrics.names(), metrics.default_names()),
        masks="all_objects",
        epochs=1 if quick else clevr_xai(**changed).recipe.epochs,
        test_images=20 if quick else 500,
        steps=64 if full else 8,
        sensitivity=tuple(f"integrated-gradients@{name}" for name in baselines),
        sensitivity_images=10 if quick else 100,
        intervals="samples" if seeds == 1 else "seeds",
        options=changed,
        code=code_of(selected),
    )
