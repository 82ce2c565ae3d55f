"""`agop bench`: a benchmark of the paper into a run folder, and what holds of its claims."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agop.cli.stopping import stoppable

if TYPE_CHECKING:
    from agop.runs.spec import RunSpec
    from agop.scenarios.clevr_xai import Options

app = typer.Typer(help="Run a benchmark of the paper.", no_args_is_help=True)

Names = list[str] | None
Method = Annotated[Names, typer.Option(help="Only this method, or package.module:CLASS; can be given several times.")]
Metric = Annotated[Names, typer.Option(help="Only this metric; can be given several times.")]
Jobs = Annotated[int | None, typer.Option(help="Processes; by default one a core.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Throw away what is in the run folder.")]


@app.command("xai-tris")
@stoppable()
def xai_tris(
    out: Annotated[Path, typer.Option(help="The run folder; one that was begun is gone on with.")] = Path(
        "runs/xai-tris"
    ),
    seeds: Annotated[int, typer.Option(help="Trainings of each scenario and background.")] = 3,
    scenario: Annotated[Names, typer.Option(help="Only this scenario; can be given several times.")] = None,
    background: Annotated[Names, typer.Option(help="uncorrelated or correlated; both by default.")] = None,
    method: Method = None,
    metric: Metric = None,
    masks: Annotated[str, typer.Option(help="true, or signed: the public generator's xor masks.")] = "true",
    jobs: Jobs = None,
    quick: Annotated[bool, typer.Option("--quick", help="2 epochs and 100 test images: to see it work.")] = False,
    fresh: Fresh = False,
) -> None:
    """Train, explain and score every scenario × background × seed, then check each claim of the paper."""
    from agop import methods, metrics, scenarios
    from agop.bench.code import code_of
    from agop.runs.spec import RunSpec

    known = scenarios.names("xai-tris")
    tasks = _chosen("scenario", scenario, known)
    own = {name: scenarios.get(name).backgrounds for name in tasks}
    backgrounds = _chosen("background", background, list(dict.fromkeys(b for name in tasks for b in own[name])))
    chosen = _chosen("method", method, methods.names())
    spec = RunSpec(
        benchmark="xai-tris",
        scenarios=tasks,
        backgrounds=backgrounds,
        seeds=seeds,
        methods=chosen,
        metrics=_chosen("metric", metric, metrics.names()),
        masks=_chosen("kind of mask", [masks], ["true", "signed"])[0],
        epochs=2 if quick else scenarios.get(tasks[0]).recipe.epochs,
        test_images=100 if quick else 1000,
        absent=tuple(f"{name}/{b}" for name in tasks for b in backgrounds if b not in own[name]),
        code=code_of(chosen),
    )
    _computed(spec, out, _processes(jobs), fresh)


@app.command("clevr-xai")
@stoppable()
def clevr_xai(
    out: Annotated[Path, typer.Option(help="The run folder; one that was begun is gone on with.")] = Path(
        "runs/clevr-xai"
    ),
    data: Annotated[
        Path | None, typer.Option(help="The official files, unpacked or not; without them scenes are drawn.")
    ] = None,
    network: Annotated[str, typer.Option(help="resnet18 or, with ImageNet weights, efficientnet-lite0.")] = "resnet18",
    weights: Annotated[Path | None, typer.Option(help="ImageNet weights for resnet18, torchvision's file.")] = None,
    seeds: Annotated[int, typer.Option(help="Trainings; intervals are over samples if it is one.")] = 1,
    method: Method = None,
    metric: Metric = None,
    jobs: Jobs = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's recipe: 50 epochs, Adam 1e-4, cosine.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="200 scenes, 1 epoch, 20 images: to see it work.")] = False,
    fresh: Fresh = False,
) -> None:
    """Train, explain and score the dominance task of CLEVR-XAI, then check each claim of the paper."""
    from agop.scenarios import get
    from agop.scenarios.clevr.dataset import drawn_dataset
    from agop.scenarios.clevr.release.samples import read_release

    options = _clevr_options(data, network, weights, full, quick)
    spec = _clevr_spec(options, seeds, method, metric, full, quick)
    get("clevr-xai").with_options(spec.options).network()  # a file or package that is missing is told at once
    processes = _processes(jobs)
    notes = [] if data is None else [read_release(data).summary()]

    def draw() -> None:
        if data is None:
            drawn_dataset(options.samples, options.size, jobs=processes)

    _computed(spec, out, processes, fresh, notes, draw)


def _clevr_options(data: Path | None, network: str, weights: Path | None, full: bool, quick: bool) -> Options:
    """The scenario's options, with a recipe that suits the size of the run and the start of the network."""
    from agop.errors import InputError
    from agop.scenarios.clevr_xai import Options

    if full and quick:
        raise InputError("--full and --quick are two sizes of one run: give one of them")
    chosen = Options(
        data=None if data is None else str(data.resolve()),
        samples=200 if quick else Options.samples,
        network=network,
        weights=None if weights is None else str(weights.resolve()),
    )
    if weights is not None and not weights.is_file():
        raise InputError(f"weights {weights} is not a file: give torchvision's resnet18-*.pth")
    return replace(chosen, recipe="paper" if full else "fine-tuning" if chosen.fine_tunes else "short")


def _clevr_spec(options: Options, seeds: int, method: Names, metric: Names, full: bool, quick: bool) -> RunSpec:
    """What a run of CLEVR-XAI computes: the paper's methods, variants and controls; IG's baselines with IG."""
    from agop import methods, metrics
    from agop.bench.code import code_of
    from agop.bench.entries import BASELINES, CONTROLS
    from agop.runs.spec import RunSpec
    from agop.scenarios.clevr_xai import LAYERS, Options, clevr_xai

    variants = [f"gradcam@{LAYERS[options.network][1]}", "agop-weighted@training", "agop-global@training", *CONTROLS]
    baselines = BASELINES if not method or "integrated-gradients" in method else ()
    chosen = _chosen("method", method, [*methods.names(), *variants])
    # Only what is not the default: a run's specification stays readable.
    told = {name: value for name, value in vars(options).items() if value != getattr(Options, name)}
    return RunSpec(
        benchmark="clevr-xai",
        scenarios=("clevr-xai",),
        backgrounds=("drawn" if options.data is None else "official",),
        seeds=seeds,
        methods=chosen,
        metrics=_chosen("metric", metric, metrics.names()),
        masks="all_objects",
        epochs=1 if quick else clevr_xai(**told).recipe.epochs,
        test_images=20 if quick else 500,
        steps=64 if full else 8,
        sensitivity=tuple(f"integrated-gradients@{name}" for name in baselines),
        sensitivity_images=10 if quick else 100,
        intervals="samples" if seeds == 1 else "seeds",
        options=told,
        code=code_of(chosen),
    )


def _chosen(kind: str, given: Names, known: Sequence[str]) -> tuple[str, ...]:
    from agop import methods
    from agop.errors import InputError
    from agop.methods.base import takes_layer
    from agop.registry import unknown_name_error

    others = [name for name in dict.fromkeys(given or ()) if name not in known]
    for name in others:
        if kind != "method" or ":" not in name:
            raise (
                methods.unknown_method_error(name, known)
                if kind == "method"
                else unknown_name_error(kind, name, list(known))
            )
        base, _, variant = name.partition("@")
        other = methods.create(base)  # LIBRARY:NAME or package.module:NAME
        if variant and not takes_layer(other):
            raise InputError(
                f"{base} has no variant {variant!r}: only methods of a layer have, captum:LayerGradCam@LAYER"
            )
    return (*(name for name in known if not given or name in given), *others)


def _processes(jobs: int | None) -> int:
    from agop.errors import InputError

    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}: give 1 or more")
    # The ranks of torchrun share the cores of their machine.
    return jobs or max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _computed(
    spec: RunSpec,
    out: Path,
    processes: int,
    fresh: bool,
    notes: Sequence[str] = (),
    draw: Callable[[], None] = lambda: None,
) -> None:
    """Begin the run, or go on with it; `draw`, once a machine, makes what its cells read. Ends with what it says."""
    from agop.bench.runner import begin, run
    from agop.errors import InputError
    from agop.system.distributed import ranks

    with ranks() as here:
        again = "run again without --fresh" if fresh else "run again"
        here.kept = f"the cells that are done stay in {out}: {again} to go on"
        here.same(asdict(spec) | {"out": str(out)})
        if here.first:
            for note in notes:
                Console(stderr=True, soft_wrap=True, highlight=False).print(note)
            begin(spec, out, fresh=fresh, notes=notes)
        here.meet()
        if not (out / "spec.json").exists():
            raise InputError(f"rank {here.rank} does not see {out}: name a folder on a disk that all machines share")
        if here.first_here:
            draw()
        run(spec, out, processes, here)
    if here.first:
        _show(out)


def _show(out: Path) -> None:
    from agop.report.run import Run
    from agop.report.terminal import show

    console = Console(highlight=False)
    show(Run(out), console)
    console.print(f"\nrows: {out}/rows.jsonl · page: agop report {out}", soft_wrap=True, markup=False)
