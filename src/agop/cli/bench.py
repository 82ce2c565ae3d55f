"""`agop bench`: a benchmark of the paper into a run folder, and what holds of its claims."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="Run a benchmark of the paper.", no_args_is_help=True)


@app.command("xai-tris")
def xai_tris(
    out: Annotated[Path, typer.Option(help="The run folder; one that was begun is gone on with.")] = Path(
        "runs/xai-tris"
    ),
    seeds: Annotated[int, typer.Option(help="Trainings of each scenario and background.")] = 3,
    scenario: Annotated[list[str] | None, typer.Option(help="Only this scenario; can be given several times.")] = None,
    background: Annotated[list[str] | None, typer.Option(help="uncorrelated or correlated; both by default.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method; can be given several times.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Only this metric; can be given several times.")] = None,
    masks: Annotated[str, typer.Option(help="true, or signed: the public generator's xor masks.")] = "true",
    jobs: Annotated[int | None, typer.Option(help="Processes; by default one a core.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="2 epochs and 100 test images: to see it work.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what is in the run folder.")] = False,
) -> None:
    """Train, explain and score every scenario × background × seed, then check each claim of the paper."""
    from agop import methods, metrics, scenarios
    from agop.bench.runner import run
    from agop.bench.spec import RunSpec
    from agop.registry import unknown
    from agop.report.run import Run
    from agop.report.terminal import show

    def chosen(kind: str, given: list[str] | None, known: list[str]) -> tuple[str, ...]:
        for name in given or ():
            if name not in known:
                raise unknown(kind, name, known)
        return tuple(name for name in known if not given or name in given)

    known = scenarios.names("xai-tris")
    backgrounds = list(dict.fromkeys(b for name in known for b in scenarios.get(name).backgrounds))
    tasks = chosen("scenario", scenario, known)
    spec = RunSpec(
        benchmark="xai-tris",
        scenarios=tasks,
        backgrounds=chosen("background", background, backgrounds),
        seeds=seeds,
        methods=chosen("method", method, methods.names()),
        metrics=chosen("metric", metric, metrics.names()),
        masks=chosen("kind of mask", [masks], ["true", "signed"])[0],
        epochs=2 if quick else scenarios.get(tasks[0]).recipe.epochs,
        test_images=100 if quick else 1000,
    )
    run(spec, out, jobs or os.cpu_count() or 1, fresh=fresh)
    console = Console(highlight=False)
    show(Run(out), console)
    console.print(f"\nrows: {out}/rows.jsonl · report: agop report {out} --out report.md", soft_wrap=True)
