"""What the benches share: options, the selection of names, and running a specification."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agop.cli.printing import plain_console

if TYPE_CHECKING:
    from agop.runs.spec import RunSpec

_FEW = 100
Names = list[str] | None
Out = Annotated[Path, typer.Option(help="Run folder. An unfinished run is resumed.")]
Method = Annotated[
    Names,
    typer.Option(help="Only this method, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE sets an option."),
]
Metric = Annotated[Names, typer.Option(help="Only this metric; repeatable.")]
Jobs = Annotated[int | None, typer.Option(help="Number of processes; by default one per core.")]
Restarts = Annotated[
    int, typer.Option(min=0, help="Train a network that doesn't learn its task again, at most this many times.")
]
Untrained = Annotated[
    bool, typer.Option("--untrained", help="Networks with random weights: methods should score as the control random.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete an earlier run in the run folder.")]
Force = Annotated[bool, typer.Option("--force", help="Resume a run that was started with another agop or torch.")]


# Parts of `agop` that take as many passes as `agop` itself: benches of larger networks run them only if named.
PARTS_OF_AGOP = ("expected-gradients", "agop-expected")


def every_method() -> list[str]:
    """The methods that a bench can run, the controls of `agop`, and the controls that are one map for every image."""
    from agop import methods
    from agop.evaluating.controls import FIXED_MAPS
    from agop.runs.controls import AGOP_CONTROLS

    # A bench's priors have no sketch.
    own = [name for name in methods.names() if "sketch" not in methods.get(name).prior_parts]
    return [*own, *AGOP_CONTROLS, *FIXED_MAPS]


def select(kind: str, names: Names, known: Sequence[str], default: Sequence[str] | None = None) -> tuple[str, ...]:
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


def select_methods(method: Names, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The named methods; by default all, and `more`, without the parts of `agop`."""
    known = [*every_method(), *more]
    return select("method", method, known, [name for name in known if name not in PARTS_OF_AGOP])


def processes(jobs: int | None) -> int:
    """The number of processes, by default one per core of this rank."""
    from agop.errors import InputError
    from agop.system.processes import available_cores

    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}: pass 1 or more")
    # Under torchrun the ranks of a machine share its cores.
    return jobs or max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def check_files(spec: RunSpec) -> None:
    """Make a few images of a run's files: raises now, before the run folder exists, if one is missing or damaged."""
    from agop import scenarios

    few = scenarios.get(spec.scenarios[0]).with_options(spec.options | {"samples": _FEW})
    for background in spec.backgrounds:
        few.splits(background, seed=0)


def compute(
    spec: RunSpec,
    out: Path,
    jobs: int,
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
        run(spec, out, jobs, rank, world_size)
    if rank == 0:
        _show(out)


def _show(out: Path) -> None:
    from rich.console import Console

    from agop.report.run import Run
    from agop.report.terminal import show

    console = Console(highlight=False, emoji=False)
    show(Run(out), console)
    console.print(f"\nrows: {out}/rows.jsonl · page: agop report {out}", soft_wrap=True, markup=False)
