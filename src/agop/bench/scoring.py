"""A trained network explained and scored: every entry on every kind of mask."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator

from torch import nn

from agop import metrics
from agop.bench.entries import Entries
from agop.evaluating.cell_folder import Scores
from agop.evaluating.scoring import scored, summary, timed_maps
from agop.explaining.explain import explain
from agop.metrics.base import reasons
from agop.runs.gallery import SHOWN
from agop.runs.rows import Row
from agop.runs.spec import RunSpec
from agop.scenarios import Split
from agop.statistic.agop import AGOP

_CONVERGING = (("agop-global", "agop-weighted"), ("iou", "energy", "average_precision"))


def score(spec: RunSpec, entries: Entries, model: nn.Module, test: Split, progress: Callable[[float], None]) -> Scores:
    """All entries of the specification on the test data, the sensitive ones on fewer images."""
    found, few = Scores(), test.first(spec.sensitivity_images)
    plan = [(name, test, True) for name in spec.methods] + [(name, few, False) for name in spec.sensitivity]
    for place, (name, data, ask) in enumerate(plan):
        entry = entries.entry(name)
        maps, milliseconds = timed_maps(model, data.images, entry.method, entry.prior, None, entry.layer)
        found.timings.append(row(name, "milliseconds", milliseconds, len(data)))
        found.maps[name] = maps[:SHOWN].clone()
        for kind, masks in data.by_kind(spec.masks).items():
            why = reasons(maps, masks)
            for metric in spec.metrics:
                # The metrics that ask the model know no masks: once is enough.
                if metrics.get(metric).needs_model and (not ask or kind != spec.masks):
                    continue
                options = {"signed": spec.masks == "signed", "steps": spec.steps, "target": None, "batch_size": None}
                values = scored(metrics.get(metric), model, data.images, maps, masks, options)
                found.samples[f"{kind}/{name}/{metric}"] = values.contiguous()
                found.rows.append({"masks": kind, "method": name, "metric": metric, **summary(values, why)})
        _give_back()
        progress((place + 1) / len(plan))
    return found


def _give_back() -> None:
    """Give freed memory back to the system: glibc keeps what lies below the scores that stay, some 250 MB an entry."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def watched(model: nn.Module, prior: AGOP, data: Split, signed: bool) -> Iterator[Row]:
    """The quality of the AGOP methods at a snapshot, with the model of that step."""
    for method in _CONVERGING[0]:
        maps = explain(model, data.images, method, prior)
        for name in _CONVERGING[1]:
            scores = metrics.get(name)(maps, data.masks, signed=signed)
            told = summary(scores, [])
            yield row(method, name, told["value"], told["n"])


def row(method: str, metric: str, value: float | None, n: int) -> Row:
    """A row, but for where it was found."""
    return {"method": method, "metric": metric, "value": value, "n": n}
