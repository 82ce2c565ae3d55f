"""`agop bench`: run a benchmark of the paper into a run folder, and check the paper's claims."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agop.cli.printing import plain_console
from agop.cli.stopping import stoppable

if TYPE_CHECKING:
    from agop.runs.spec import RunSpec
    from agop.scenarios.clevr_xai import Options

app = typer.Typer(help="Run a benchmark of the paper.", no_args_is_help=True)

Names = list[str] | None
Method = Annotated[
    Names,
    typer.Option(help="Only this method, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE sets an option."),
]
Metric = Annotated[Names, typer.Option(help="Only this metric; repeatable.")]
Jobs = Annotated[int | None, typer.Option(help="Number of processes; by default one per core.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete an earlier run in the run folder.")]
Force = Annotated[bool, typer.Option("--force", help="Resume a run that was started with another agop or torch.")]


@app.command("xai-tris")
@stoppable("finished cells stay in {out}: run again (without --fresh) to resume")
def xai_tris(
    out: Annotated[Path, typer.Option(help="Run folder. An unfinished run is resumed.")] = Path("runs/xai-tris"),
    seeds: Annotated[int, typer.Option(help="Trainings per scenario and background.")] = 3,
    scenario: Annotated[Names, typer.Option(help="Only this scenario; repeatable.")] = None,
    background: Annotated[Names, typer.Option(help="uncorrelated or correlated; both by default.")] = None,
    method: Method = None,
    metric: Metric = None,
    masks: Annotated[str, typer.Option(help="true, or signed: the xor masks of the public generator.")] = "true",
    jobs: Jobs = None,
    quick: Annotated[bool, typer.Option("--quick", help="2 epochs and 100 test images: a smoke test.")] = False,
    fresh: Fresh = False,
    force: Force = False,
) -> None:
    """Train, explain and score every scenario × background × seed, then check each claim of the paper."""
    from agop import methods, metrics, scenarios
    from agop.bench.code import code_of
    from agop.runs.spec import RunSpec

    tasks = _select("scenario", scenario, scenarios.names("xai-tris"))
    own = {name: scenarios.get(name).backgrounds for name in tasks}
    backgrounds = _select("background", background, list(dict.fromkeys(b for name in tasks for b in own[name])))
    selected = _select("method", method, methods.names())
    spec = RunSpec(
        benchmark="xai-tris",
        scenarios=tasks,
        backgrounds=backgrounds,
        seeds=seeds,
        methods=selected,
        metrics=_select("metric", metric, metrics.names(), metrics.default_names()),
        masks=_select("kind of mask", [masks], ["true", "signed"])[0],
        epochs=2 if quick else scenarios.get(tasks[0]).recipe.epochs,
        test_images=100 if quick else 1000,
        absent=tuple(f"{name}/{b}" for name in tasks for b in backgrounds if b not in own[name]),
        code=code_of(selected),
    )
    _run(spec, out, _processes(jobs), fresh, force)


@app.command("clevr-xai")
@stoppable("finished cells stay in {out}: run again (without --fresh) to resume")
def clevr_xai(
    out: Annotated[Path, typer.Option(help="Run folder. An unfinished run is resumed.")] = Path("runs/clevr-xai"),
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
    processes = _processes(jobs)
    notes = [] if data is None else [read_release(data).summary()]

    def draw() -> None:
        if data is None:
            # Of the ranks on one machine the first draws, the others find the scenes.
            with file_lock(cache_folder() / "clevr.lock"):
                drawn_dataset(options.samples, options.size, jobs=processes)

    _run(spec, out, processes, fresh, force, notes, draw)


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
    from agop import methods, metrics
    from agop.bench.code import code_of
    from agop.bench.entries import BASELINES
    from agop.evaluating.controls import FIXED_MAPS
    from agop.runs.spec import RunSpec
    from agop.scenarios.clevr_xai import LAYERS, Options, clevr_xai

    variants = [f"gradcam@{LAYERS[options.network][1]}", "agop-weighted@training", "agop-global@training", *FIXED_MAPS]
    baselines = BASELINES if not method or "integrated-gradients" in method else ()
    selected = _select("method", method, [*methods.names(), *variants])
    # Only options that differ from the default: the specification stays readable.
    changed = {name: value for name, value in vars(options).items() if value != getattr(Options, name)}
    return RunSpec(
        benchmark="clevr-xai",
        scenarios=("clevr-xai",),
        backgrounds=("drawn" if options.data is None else "official",),
        seeds=seeds,
        methods=selected,
        metrics=_select("metric", metric, metrics.names(), metrics.default_names()),
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


def _select(kind: str, names: Names, known: Sequence[str], default: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names among the known ones, in their order, then the user's own methods; by default all known ones."""
    from agop import methods
    from agop.errors import InputError
    from agop.methods.base import takes_layer
    from agop.registry import unknown_name_error

    others = [name for name in dict.fromkeys(names or ()) if name not in known]
    for name in others:
        if kind != "method":
            raise unknown_name_error(kind, name, list(known))
        if ":" not in name:
            raise methods.unknown_method_error(name, known)
        base, _, variant = name.partition("@")
        method = methods.create(base)  # LIBRARY:NAME or package.module:NAME
        if variant and not takes_layer(method):
            raise InputError(
                f"{base} has no variant {variant!r}: only methods of a layer have variants, captum:LayerGradCam@LAYER"
            )
    return (*(name for name in known if name in (names or default or known)), *others)


def _processes(jobs: int | None) -> int:
    from agop.errors import InputError
    from agop.system.processes import available_cores

    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}: pass 1 or more")
    # Under torchrun the ranks of a machine share its cores.
    return jobs or max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _run(
    spec: RunSpec,
    out: Path,
    processes: int,
    fresh: bool,
    force: bool,
    notes: Sequence[str] = (),
    draw: Callable[[], None] = lambda: None,
) -> None:
    """Begin or resume the run, then print its summary; `draw` prepares the data that cells read."""
    from agop.bench.run_folder import run_folder
    from agop.bench.runner import run
    from agop.errors import InputError
    from agop.system.distributed import torchrun_rank

    rank, world_size = torchrun_rank()
    if fresh and world_size > 1:
        # A rank that starts late could take cells of the old run for new ones.
        raise InputError(f"--fresh works in one process only: delete {out}, then start torchrun without --fresh")
    if rank == 0:
        for note in notes:
            plain_console(stderr=True).print(note)
    with run_folder(spec, out, fresh=fresh, force=force, notes=notes, rank=rank):
        draw()
        run(spec, out, processes, rank, world_size)
    if rank == 0:
        _show(out)


def _show(out: Path) -> None:
    from agop.report.run import Run
    from agop.report.terminal import show

    console = Console(highlight=False, emoji=False)
    show(Run(out), console)
    console.print(f"\nrows: {out}/rows.jsonl · page: agop report {out}", soft_wrap=True, markup=False)
