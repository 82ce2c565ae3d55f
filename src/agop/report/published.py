"""Our rank accuracy beside the precision that XAI-TRIS published: the same metric, masks and choice of images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from agop.report.estimate import Estimate
from agop.report.run import Run


@dataclass(frozen=True)
class Comparison:
    """Our value and the published one, which was read from a figure."""

    scenario: str
    background: str
    method: str
    ours: Estimate
    published: float

    @property
    def difference(self) -> float:
        """Ours minus the published value."""
        return self.ours.mean - self.published


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The published figures by network, background, method and task, with their source and reading error."""
    return dict(json.loads(files("agop.report").joinpath("published.json").read_text(encoding="utf-8")))


def comparisons(run: Run) -> list[Comparison]:
    """Every value of the run that has a published one; none for other benchmarks."""
    about = published()
    if run.spec.benchmark != "xai-tris" or about["masks"] not in run.kinds:
        return []
    view = run.with_masks(about["masks"]).with_correct_images()
    lines = []
    for scenario in run.spec.scenarios:
        task = run.spec.tasks.get(scenario, scenario)
        network = scenario.removeprefix(f"{task}-") if scenario in run.spec.tasks else "cnn"
        for background, by_method in about["figures"].get(network, {}).items():
            for method, by_task in by_method.items():
                ours = view.estimate(scenario, background, method, about["metric"])
                if ours is not None and task in by_task:
                    lines.append(Comparison(scenario, background, method, ours, by_task[task]))
    return lines
