"""`agop bench`: run a benchmark into a run folder, and check the paper's claims."""

from __future__ import annotations

from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import typer

from agop.cli.printing import plain_console, stoppable

Names = list[str] | None
File = Path | None


def _option(name: str, kind: Any, default: Any, text: str, **more: Any) -> Parameter:
    """An option of a command. A bool is a flag."""
    flag = (f"--{name}",) if kind is bool else ()
    option = typer.Option(default, *flag, help=text, **more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _out(benchmark: str) -> Parameter:
    return _option("out", Path, Path("runs", benchmark), "Run folder. An unfinished run is resumed.")


_METHOD = _option(
    "method",
    Names,
    None,
    "Only this method, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE sets an option.",
)
_METRIC = _option("metric", Names, None, "Only this metric; repeatable.")
_JOBS = _option("jobs", int | None, None, "Number of processes; by default one per core.")
_RESTARTS = _option(
    "restarts", int, 5, "Train a network that doesn't learn its task again, at most this many times.", min=0
)
_UNTRAINED = _option(
    "untrained", bool, False, "Networks with random weights: methods should score as the control random."
)
_FRESH = _option("fresh", bool, False, "Delete an earlier run in the run folder.")
_FORCE = _option(
    "force",
    bool,
    False,
    "Resume a run that was started with another agop or torch, or write into a folder that has other files.",
)
_SMOKE_TEST = _option("quick", bool, False, "400 images, 1 epoch, 20 test images: a smoke test.")
_PHOTOS = "Photographs: a folder of images, an .npz, or CIFAR-10's folder."

# Benchmark → what it does, and its options.
BENCHMARKS: dict[str, tuple[str, list[Parameter]]] = {
    "xai-tris": (
        "Train, explain and score every scenario × background × seed, then check each claim of the paper.",
        [
            _out("xai-tris"),
            _option("seeds", int, 6, "Trainings per scenario, background and network."),
            _option("scenario", Names, None, "Only this scenario; repeatable."),
            _option("background", Names, None, "uncorrelated (default) or correlated; repeatable."),
            _option("network", Names, None, "cnn (default, the paper's), mlp or llr; repeatable."),
            _METHOD,
            _METRIC,
            _option(
                "masks",
                str,
                "own",
                "Main ground truth: own (the image's own shape), union (both shapes, as published; a run scores own "
                "and union), or signed (the xor masks of the public generator).",
            ),
            _RESTARTS,
            _JOBS,
            _option(
                "full", bool, False, "Both backgrounds, all networks, all methods, and 1,000 test images, not 400."
            ),
            _option("quick", bool, False, "2 epochs and 100 test images: a smoke test."),
            _UNTRAINED,
            _FRESH,
            _FORCE,
        ],
    ),
    "xai-tris-64": (
        "Train, explain and score XAI-TRIS at 64×64: large tetrominoes in noise or on photographs.",
        [
            _out("xai-tris-64"),
            _option("seeds", int, 3, "Trainings per scenario and background."),
            _option("scenario", Names, None, "Only this scenario: linear, xor …; repeatable."),
            _option(
                "background",
                Names,
                None,
                "white (default), correlated, photos (default with --photos), pink-noise; repeatable.",
            ),
            _option("photos", File, None, _PHOTOS),
            _METHOD,
            _METRIC,
            _RESTARTS,
            _JOBS,
            _SMOKE_TEST,
            _FRESH,
            _FORCE,
        ],
    ),
    "composite": (
        "Train, explain and score digits on photographs, where the mask is the digit.",
        [
            _out("composite"),
            _option("seeds", int, 3, "Trainings per scenario."),
            _option("scenario", Names, None, "composite or composite-still; both by default."),
            _option(
                "digits", File, None, "MNIST's idx files: their folder, or one file of images. Default: drawn digits."
            ),
            _option("photos", File, None, f"{_PHOTOS} Default: pink noise."),
            _option("size", int, 32, "Side of the images: 32 or 64."),
            _option("samples", int | None, None, "Number of images in all splits."),
            _METHOD,
            _METRIC,
            _RESTARTS,
            _JOBS,
            _SMOKE_TEST,
            _UNTRAINED,
            _FRESH,
            _FORCE,
        ],
    ),
    "clevr-xai": (
        "Train, explain and score the dominance task of CLEVR-XAI, then check each claim of the paper.",
        [
            _out("clevr-xai"),
            _option("data", File, None, "The official files, unpacked or not. Without them, scenes are rendered."),
            _option("network", str, "resnet18", "resnet18, or efficientnet-lite0 with ImageNet weights."),
            _option("weights", File, None, "ImageNet weights for resnet18, a file of torchvision."),
            _option("seeds", int, 1, "Trainings. With one, intervals are over samples."),
            _METHOD,
            _METRIC,
            _JOBS,
            _option("full", bool, False, "The paper's recipe: 50 epochs, Adam 1e-4, cosine."),
            _option("quick", bool, False, "200 scenes, 1 epoch, 20 images: a smoke test."),
            _FRESH,
            _FORCE,
        ],
    ),
    "shortcuts": (
        "Train models with and without planted shortcuts, and judge the audit: are learned shortcuts found?",
        [
            _out("shortcuts"),
            _option(
                "data", File, None, "MNIST-like idx files, CIFAR-10's folder, or class folders. Default: drawn digits."
            ),
            _option("seeds", int, 2, "Models of each kind, strength and prevalence.", min=1),
            _option("first_seed", int, 0, "The first seed.", min=0),
            _option("kind", Names, None, "Only this kind of plant: patch, sticker …; repeatable."),
            _option("prevalence", Names, None, "confounder, balanced (the default has both) or none; repeatable."),
            _option("strength", Names, None, "strong or weak; both by default."),
            _option("detector", Names, None, "Only the audit and this detector: spray …; repeatable."),
            _option("classes", int, 5, "Classes of each task.", min=2),
            _option(
                "label",
                list[int] | None,
                None,
                "A class of every task, by its label; repeatable. Default: drawn by seed.",
            ),
            _option("samples", int, 5000, "Images of each task, in all splits."),
            _JOBS,
            _option("quick", bool, False, "600 images, 1 epoch: a smoke test."),
            _FORCE,
        ],
    ),
}


def _run(benchmark: str, out: Path, jobs: int | None, force: bool, **options: Any) -> None:
    """Run a benchmark, and print its summary."""
    from rich.console import Console

    from agop.errors import InputError
    from agop.processes import available_cores

    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}: pass 1 or more")
    jobs = jobs or available_cores()
    if benchmark == "shortcuts":
        from agop.bench.shortcuts import run_shortcuts

        run_shortcuts(out, jobs, force=force, print_line=plain_console().print, **options)
        return
    from agop.bench.plans import PLANS
    from agop.bench.runner import run
    from agop.report.formats import show
    from agop.report.run import Run

    fresh = options.pop("fresh")
    plan = PLANS[benchmark](**options)
    for note in plan.notes:
        plain_console(stderr=True).print(note)
    run(plan, out, jobs, fresh=fresh, force=force)
    console = Console(highlight=False, emoji=False)
    show(Run(out), console)
    console.print(f"\nrows: {out}/rows.jsonl · page: agop report {out}", soft_wrap=True, markup=False)


app = typer.Typer(help="Run a benchmark.", no_args_is_help=True, rich_markup_mode=None)


def _add_command(benchmark: str, description: str, options: list[Parameter]) -> None:
    resume = "again" if benchmark == "shortcuts" else "again (without --fresh)"
    what = "models" if benchmark == "shortcuts" else "cells"

    @stoppable(f"finished {what} stay in {{out}}: run {resume} to resume")
    def command(**values: Any) -> None:
        _run(benchmark, **values)

    command.__doc__ = description
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]  # read by typer
    app.command(benchmark)(command)


for _name, (_description, _options) in BENCHMARKS.items():
    _add_command(_name, _description, _options)
