"""`agop bench xai-tris`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli.bench.common import (
    PARTS_OF_AGOP,
    Force,
    Fresh,
    Jobs,
    Method,
    Metric,
    Names,
    Out,
    Restarts,
    Untrained,
    compute,
    every_method,
    processes,
    select,
)
from agop.cli.stopping import stoppable
from agop.runs.controls import AGOP_CONTROLS

_ONLY_FULL = (*AGOP_CONTROLS, *PARTS_OF_AGOP)


@stoppable("finished cells stay in {out}: run again (without --fresh) to resume")
def xai_tris(
    out: Out = Path("runs/xai-tris"),
    seeds: Annotated[int, typer.Option(help="Trainings per scenario, background and network.")] = 6,
    scenario: Annotated[Names, typer.Option(help="Only this scenario; repeatable.")] = None,
    background: Annotated[Names, typer.Option(help="uncorrelated (default) or correlated; repeatable.")] = None,
    network: Annotated[Names, typer.Option(help="cnn (default, the paper's), mlp or llr; repeatable.")] = None,
    method: Method = None,
    metric: Metric = None,
    masks: Annotated[
        str,
        typer.Option(
            help="Main ground truth: own (the image's own shape), union (both shapes, as published; a run scores own "
            "and union), or signed (the xor masks of the public generator)."
        ),
    ] = "own",
    restarts: Restarts = 5,
    jobs: Jobs = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Both backgrounds, all networks, all methods, and 1,000 test images, not 400."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="2 epochs and 100 test images: a smoke test.")] = False,
    untrained: Untrained = False,
    fresh: Fresh = False,
    force: Force = False,
) -> None:
    """Train, explain and score every scenario × background × seed, then check each claim of the paper."""
    from agop import metrics, scenarios
    from agop.bench.code import code_of
    from agop.errors import InputError
    from agop.runs.spec import RunSpec

    networks = scenarios.networks("xai-tris")
    selected = select("network", network, networks, networks if full else networks[:1])
    known = {name: scenarios.get(name) for which in selected for name in scenarios.names("xai-tris", which)}
    for name in scenario or ():
        if name in scenarios.names("xai-tris") and not any(name in (s.name, s.task) for s in known.values()):
            raise InputError(f"{name} isn't available with network {', '.join(selected)}: add --network cnn or mlp")
    tasks = select("scenario", scenario, list(dict.fromkeys(known[name].task or name for name in known)))
    own = {name: known[name].backgrounds for name in known if (known[name].task or name) in tasks}
    every = list(dict.fromkeys(b for backgrounds in own.values() for b in backgrounds))
    backgrounds = select("background", background, every, [b for b in every if full or b != "correlated"])
    listed = every_method()
    chosen = select("method", method, listed, [name for name in listed if full or name not in _ONLY_FULL])
    spec = RunSpec(
        benchmark="xai-tris",
        scenarios=tuple(own),
        backgrounds=backgrounds,
        seeds=seeds,
        methods=chosen,
        metrics=select("metric", metric, metrics.names(), metrics.default_names()),
        masks="own" if masks == "true" else select("kind of mask", [masks], ["own", "union", "signed"])[0],
        epochs=0 if untrained else 2 if quick else known[next(iter(own))].recipe.epochs,
        test_images=100 if quick else 1000 if full else 400,
        absent=tuple(f"{name}/{b}" for name in own for b in backgrounds if b not in own[name]),
        restarts=None if quick or untrained else restarts,
        tasks={name: known[name].task for name in own if known[name].task},
        code=code_of(chosen),
    )
    compute(spec, out, processes(jobs), fresh, force)
