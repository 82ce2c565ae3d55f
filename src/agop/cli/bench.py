"""`agop bench`: run a benchmark into a run folder, and check the paper's claims."""

from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import typer

from agop.cli.printing import plain_console, stoppable


def _option(name: str, kind: Any, default: Any, text: str, *flags: str, **more: Any) -> Parameter:
    option = typer.Option(default, *flags, help=text, **more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _names(name: str, text: str) -> Parameter:
    """An option that can be repeated."""
    return _option(name, list[str] | None, None, f"{text}; repeatable.")


def _file(name: str, text: str) -> Parameter:
    return _option(name, Path | None, None, text)


def _flag(name: str, text: str) -> Parameter:
    return _option(name, bool, False, text, f"--{name}")


_SCORED = [
    _names("method", "Only this method, METHOD:OPTION=VALUE, or package.module:CLASS"),
    _names("metric", "Only this metric"),
]
_JOBS = _option("jobs", int | None, None, "Number of processes; by default one per core.")
_RESTARTS = _option("restarts", int, 5, "Most repeated trainings of a network that doesn't learn its task.", min=0)
_UNTRAINED = _flag("untrained", "Networks with random weights: methods should score as the control random.")
_FORCE = _flag(
    "force", "Resume a run that was started with another agop or torch, or write into a folder that has other files."
)
_FOLDER = [
    _flag("fresh", "Delete an earlier run in the run folder."),
    _FORCE,
    _flag("verbose", "Print all tables, and the figures of each verdict."),
]
_SMOKE_TEST = _flag("quick", "400 images, 1 epoch, 20 test images: a smoke test.")
_PHOTOS = "Photographs: a folder of images, an .npz, or CIFAR-10's folder."

# Benchmark → what it does, and its options, beside --out.
BENCHMARKS: dict[str, tuple[str, list[Parameter]]] = {
    "xai-tris": (
        "Train, explain and score every scenario × background × seed, then check each claim of the paper.",
        [
            _option("seeds", int, 6, "Trainings per scenario, background and network."),
            _names("scenario", "Only this scenario"),
            _names("background", "uncorrelated (default) or correlated"),
            _names("network", "cnn (default, the paper's), mlp or llr"),
            *_SCORED,
            _option(
                "masks", str, "own", "Main ground truth: own (the image's shape), union (both, as published), signed."
            ),
            _RESTARTS,
            _JOBS,
            _flag("full", "Both backgrounds, all networks, all methods, and 1,000 test images, not 400."),
            _flag("quick", "2 epochs and 100 test images: a smoke test."),
            _UNTRAINED,
            *_FOLDER,
        ],
    ),
    "xai-tris-64": (
        "Train, explain and score XAI-TRIS at 64×64: large tetrominoes in noise or on photographs.",
        [
            _option("seeds", int, 3, "Trainings per scenario and background."),
            _names("scenario", "Only this scenario: linear, xor …"),
            _names("background", "white (default), correlated, photos (default with --photos), pink-noise"),
            _file("photos", _PHOTOS),
            *_SCORED,
            _RESTARTS,
            _JOBS,
            _SMOKE_TEST,
            *_FOLDER,
        ],
    ),
    "composite": (
        "Train, explain and score digits on photographs, where the mask is the digit.",
        [
            _option("seeds", int, 3, "Trainings per scenario."),
            _names("scenario", "composite or composite-still, both by default"),
            _file("digits", "MNIST's idx files: their folder, or one file of images. Default: drawn digits."),
            _file("photos", f"{_PHOTOS} Default: pink noise."),
            _option("size", int, 32, "Side of the images: 32 or 64."),
            _option("samples", int | None, None, "Number of images in all splits."),
            *_SCORED,
            _RESTARTS,
            _JOBS,
            _SMOKE_TEST,
            _UNTRAINED,
            *_FOLDER,
        ],
    ),
    "clevr-xai": (
        "Train, explain and score the dominance task of CLEVR-XAI, then check each claim of the paper.",
        [
            _file("data", "The official files, unpacked or not. Without them, scenes are rendered."),
            _option("network", str, "resnet18", "resnet18, or efficientnet-lite0 with ImageNet weights."),
            _file("weights", "ImageNet weights for resnet18, a file of torchvision."),
            _option("seeds", int, 1, "Trainings. With one, intervals are over samples."),
            *_SCORED,
            _JOBS,
            _flag("full", "The paper's recipe: 50 epochs, Adam 1e-4, cosine."),
            _flag("quick", "200 scenes, 1 epoch, 20 images: a smoke test."),
            *_FOLDER,
        ],
    ),
    "shortcuts": (
        "Train models with and without planted shortcuts, and judge the audit: are learned shortcuts found?",
        [
            _file("data", "MNIST-like idx files, CIFAR-10's folder, or class folders. Default: drawn digits."),
            _option("seeds", int, 2, "Models of each kind, strength and prevalence.", min=1),
            _option("first_seed", int, 0, "The first seed.", min=0),
            _names("kind", "Only this kind of plant: patch, sticker …"),
            _names("prevalence", "confounder, balanced (the default has both) or none"),
            _names("strength", "strong or weak, both by default"),
            _names("detector", "Only the audit and this detector: spray …"),
            _option("classes", int, 5, "Classes of each task.", min=2),
            _option("label", list[int] | None, None, "A class of every task; repeatable. Default: drawn by seed."),
            _option("samples", int, 5000, "Images of each task, in all splits."),
            _JOBS,
            _flag("quick", "600 images, 1 epoch: a smoke test."),
            _FORCE,
        ],
    ),
    "cutouts": (
        "Paste objects on photographs, explain a pretrained network, and score maps against the objects' outlines.",
        [
            _file("objects", "objects.csv with lines file,class[,class…], files with transparency; or its folder."),
            _file("photos", "Photographs: a folder of images."),
            _option(
                "network", str | None, None, "package.module:function, torchvision:NAME … for ImageNet's mean, std."
            ),
            _option("size", int, 224, "Side of the images.", min=32),
            _option("per_object", int, 2, "Images of each object.", min=1),
            _option("pairs", int, 60, "Images with two objects.", min=0),
            _option("seed", int, 0, "Seed of places and sizes.", min=0),
            *_SCORED[:1],
            _FORCE,
        ],
    ),
}


def _run(benchmark: str, out: Path, force: bool, jobs: int | None = None, **options: Any) -> None:
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
    if benchmark == "cutouts":
        from agop.bench.cutouts import CutoutsSpec, run_cutouts

        for name in ("objects", "photos", "network"):
            if options[name] is None:
                raise InputError(f"{name} is missing: pass --{name}")
        methods = {"methods": tuple(options.pop("method"))} if options["method"] else options.pop("method") or {}
        run_cutouts(out, CutoutsSpec(**options, **methods), print_line=plain_console().print, force=force)
        return
    from agop.bench.plans import PLANS
    from agop.bench.runner import run
    from agop.report.formats import show
    from agop.report.run import Run

    fresh, verbose = options.pop("fresh"), options.pop("verbose")
    plan = PLANS[benchmark](**options)
    for note in plan.notes:
        plain_console(stderr=True).print(note)
    run(plan, out, jobs, fresh=fresh, force=force)
    console = Console(highlight=False, emoji=False)
    show(Run(out), console, verbose=verbose)
    console.print(f"\nrows: {out}/rows.jsonl · page: agop report {out}", soft_wrap=True, markup=False)


app = typer.Typer(help="Run a benchmark.", no_args_is_help=True, rich_markup_mode=None)


def _add_command(benchmark: str, description: str, options: list[Parameter]) -> None:
    what, how = {"shortcuts": ("models", "again"), "cutouts": ("methods", "again")}.get(
        benchmark, ("cells", "again (without --fresh)")
    )

    @stoppable(f"finished {what} stay in {{out}}: run {how} to resume")
    def command(**values: Any) -> None:
        _run(benchmark, **values)

    command.__doc__ = description
    out = _option("out", Path, Path("runs", benchmark), "Run folder. An unfinished run is resumed.")
    command.__signature__ = Signature([out, *options])  # type: ignore[attr-defined]  # read by typer
    app.command(benchmark)(command)


for _name, (_description, _options) in BENCHMARKS.items():
    _add_command(_name, _description, _options)
