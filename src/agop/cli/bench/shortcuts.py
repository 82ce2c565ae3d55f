"""`agop bench shortcuts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli.bench.common import Jobs, Names, Out, processes, select
from agop.cli.printing import plain_console
from agop.cli.stopping import stoppable

_REPORT = "report.md"


@stoppable("finished models stay in {out}: run again to resume")
def shortcuts(
    out: Out = Path("runs/shortcuts"),
    data: Annotated[
        Path | None,
        typer.Option(help="MNIST-like idx files, CIFAR-10's folder, or class folders. Default: drawn digits."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Models of each kind, strength and prevalence.")] = 2,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    kind: Annotated[Names, typer.Option(help="Only this kind of plant: patch, sticker …; repeatable.")] = None,
    prevalence: Annotated[
        Names, typer.Option(help="confounder, balanced (the default has both) or none; repeatable.")
    ] = None,
    strength: Annotated[Names, typer.Option(help="strong or weak; both by default.")] = None,
    detector: Annotated[Names, typer.Option(help="Only the audit and this detector: spray …; repeatable.")] = None,
    classes: Annotated[int, typer.Option(min=2, help="Classes of each task.")] = 5,
    label: Annotated[
        list[int] | None, typer.Option(help="A class of every task, by its label; repeatable. Default: drawn by seed.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Images of each task, in all splits.")] = 5000,
    jobs: Jobs = None,
    quick: Annotated[bool, typer.Option("--quick", help="600 images, 1 epoch: a smoke test.")] = False,
) -> None:
    """Train models with and without planted shortcuts, and judge the audit: are learned shortcuts found?"""
    from agop.bench.shortcuts.detectors import DETECTORS
    from agop.bench.shortcuts.models import RECIPE
    from agop.bench.shortcuts.run import cases, run_models, source_of
    from agop.report.shortcuts import markdown
    from agop.runs.shortcuts import ShortcutSpec, begin, read_results
    from agop.scenarios.shortcuts.plants import KINDS, STRENGTHS
    from agop.scenarios.shortcuts.task import PREVALENCES, planted_task
    from agop.system.files import write_atomically

    listed = cases(
        select("kind", kind, list(KINDS)),
        select("prevalence", prevalence, list(PREVALENCES), ["confounder", "balanced"]),
        select("strength", strength, list(STRENGTHS)),
        range(first_seed, first_seed + seeds),
    )
    spec = ShortcutSpec(
        data=None if data is None else str(data.resolve()),
        classes=len(label) if label else classes,
        samples=600 if quick else samples,
        side=32,
        labels=tuple(label or ()),
        epochs=1 if quick else RECIPE.epochs,
        detectors=tuple(dict.fromkeys(("audit", *select("detector", detector, DETECTORS)))),
    )
    planted_task(listed[0], source_of(spec))  # raises now if a file is missing or damaged
    begin(spec, out)
    console = plain_console()
    console.print(f"{len(listed)} models: one to two minutes each on one core")
    run_models(spec, listed, out, processes(jobs))
    text = markdown(spec, read_results(out))
    write_atomically(out / _REPORT, text.encode())
    console.print(text)
    console.print(f"wrote {out / _REPORT}")
