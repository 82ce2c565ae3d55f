"""`agop bench xai-tris`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli.bench.common import Force, Fresh, Jobs, Method, Metric, Names, Out, compute, processes, select
from agop.cli.stopping import stoppable


@stoppable("finished cells stay in {out}: run again (without --fresh) to resume")
def xai_tris(
    out: Out = Path("runs/xai-tris"),
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

    tasks = select("scenario", scenario, scenarios.names("xai-tris"))
    own = {name: scenarios.get(name).backgrounds for name in tasks}
    backgrounds = select("background", background, list(dict.fromkeys(b for name in tasks for b in own[name])))
    selected = select("method", method, methods.names())
    spec = RunSpec(
        benchmark="xai-tris",
        scenarios=tasks,
        backgrounds=backgrounds,
        seeds=seeds,
        methods=selected,
        metrics=select("metric", metric, metrics.names(), metrics.default_names()),
        masks=select("kind of mask", [masks], ["true", "signed"])[0],
        epochs=2 if quick else scenarios.get(tasks[0]).recipe.epochs,
        test_images=100 if quick else 1000,
        absent=tuple(f"{name}/{b}" for name in tasks for b in backgrounds if b not in own[name]),
        code=code_of(selected),
    )
    compute(spec, out, processes(jobs), fresh, force)
