"""The summary of `agop bench shortcuts`: is a learned shortcut found, and is there an alarm without one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from agop.runs.shortcuts import ModelResult, ShortcutSpec

# Accuracy that a model must lose when the plant changes sides: below, it hasn't learned the shortcut.
LEARNED = 0.1
_RESAMPLED = 2000
Interval = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """A value with its 95 % interval over models."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.3f} [{low:.3f}, {high:.3f}]"


@dataclass(frozen=True)
class Summary:
    """The models of a run: those that learned a shortcut, those that have none, and those that didn't learn theirs."""

    learned: tuple[ModelResult, ...]
    without: tuple[ModelResult, ...]
    not_learned: tuple[ModelResult, ...]

    @classmethod
    def of(cls, results: Sequence[ModelResult]) -> Summary:
        """Sort the models by what was measured on them."""
        confounded = [result for result in results if result.prevalence == "confounder"]
        return cls(
            tuple(result for result in confounded if result.drop >= LEARNED),
            tuple(result for result in results if result.prevalence != "confounder"),
            tuple(result for result in confounded if result.drop < LEARNED),
        )

    def auroc(self, detector: str) -> Score:
        """Probability that the alarm is louder for a learned shortcut than for a model without one."""
        return self._resampled(lambda high, low: _auroc(high[detector], low[detector]))

    def auroc_difference(self, detector: str, other: str) -> Score:
        """The AUROC of a detector minus that of another one, on the same models."""
        return self._resampled(
            lambda high, low: _auroc(high[detector], low[detector]) - _auroc(high[other], low[other])
        )

    def share_found(self, results: Sequence[ModelResult]) -> Score:
        """The share of models for which the audit reports a finding, with Wilson's interval."""
        found = sum(bool(result.detections["audit"].found) for result in results)
        return Score(found / len(results), _wilson(found, len(results)))

    def overlaps(self, detector: str) -> list[float]:
        """Overlap of the named region with the plant, of learned plants at a fixed place; 0 if none is named."""
        fixed = [result for result in self.learned if result.fixed]
        return [result.detections[detector].iou or 0.0 for result in fixed]

    def _resampled(self, statistic: Callable[..., float]) -> Score:
        random = np.random.default_rng(0)
        high, low = (_alarms(results) for results in (self.learned, self.without))
        values = [
            statistic(_drawn(high, len(self.learned), random), _drawn(low, len(self.without), random))
            for _ in range(_RESAMPLED)
        ]
        ends = np.quantile(values, [0.025, 0.975])
        return Score(statistic(high, low), (float(ends[0]), float(ends[1])))


def markdown(spec: ShortcutSpec, results: Sequence[ModelResult]) -> str:
    """The report as Markdown."""
    summary = Summary.of(results)
    images = "drawn digits" if spec.data is None else spec.data.rstrip("/").rsplit("/", maxsplit=1)[-1]
    lines = [
        "# shortcuts",
        "",
        f"{len(results)} models on {images}: {spec.classes} classes, {spec.samples:,} images, {spec.side}×{spec.side},",
        f"seeds {', '.join(map(str, sorted({result.seed for result in results})))}.",
        f"{len(summary.learned)} learned a planted shortcut. {len(summary.without)} have none: they are clean, or half",
        f"of each class has the plant. {len(summary.not_learned)} didn't learn theirs and aren't counted.",
        f"A model has learned its shortcut if it loses at least {100 * LEARNED:.0f} % accuracy when the plant changes",
        "sides. Intervals are 95 % over models.",
    ]
    if summary.learned and summary.without:
        lines += ["", *_detectors(spec, summary)]
    lines += ["", *_kinds(summary), *_places(results)]
    return "\n".join(lines) + "\n"


def _detectors(spec: ShortcutSpec, summary: Summary) -> list[str]:
    lines = [
        "| detector | AUROC of the alarm | audit minus this | found | false alarms | IoU, fixed places | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in spec.detectors:
        own = name == "audit"
        seconds = median(result.detections[name].seconds for result in (*summary.learned, *summary.without))
        overlaps = summary.overlaps(name)
        cells = [
            name,
            str(summary.auroc(name)),
            "" if own else str(summary.auroc_difference("audit", name)),
            str(summary.share_found(summary.learned)) if own else "–",
            str(summary.share_found(summary.without)) if own else "–",
            f"{median(overlaps):.2f}" if overlaps else "–",
            f"{seconds:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _kinds(summary: Summary) -> list[str]:
    """A row per kind of plant."""
    everyone = (*summary.learned, *summary.without, *summary.not_learned)
    lines = ["| plant | strength | learned | found | balanced or clean | false alarms |", "|---|---|---|---|---|---|"]
    for kind in dict.fromkeys(result.kind for result in everyone):
        for strength in dict.fromkeys(result.strength for result in everyone if result.kind == kind):
            own = [
                [result for result in results if (result.kind, result.strength) == (kind, strength)]
                for results in (summary.learned, summary.without, summary.not_learned)
            ]
            found = [sum(bool(result.detections["audit"].found) for result in results) for results in own]
            learned = f"{len(own[0])} of {len(own[0]) + len(own[2])}"
            lines.append(f"| {kind} | {strength} | {learned} | {found[0]} | {len(own[1])} | {found[1]} |")
    return lines


def _places(results: Sequence[ModelResult]) -> list[str]:
    """A row per kind, strength and seed with several prevalences: diagonal and transplant at the place of the plant."""
    groups: dict[tuple[str, str, int], dict[str, ModelResult]] = {}
    for result in results:
        if result.fixed:
            groups.setdefault((result.kind, result.strength, result.seed), {})[result.prevalence] = result
    several = {key: models for key, models in groups.items() if len(models) > 1}
    if not several:
        return []
    prevalences = list(dict.fromkeys(name for models in several.values() for name in models))
    lines = [
        "",
        "At the place of the plant: the mean of diag(M) over its mean everywhere / the mean rise of P(class) when the",
        "place is pasted from images of the class into others.",
        "",
        f"| plant | strength | seed | {' | '.join(prevalences)} |",
        "|---" * (3 + len(prevalences)) + "|",
    ]
    for key, models in sorted(several.items()):
        cells = [_place(models.get(name)) for name in prevalences]
        lines.append(f"| {' | '.join([*map(str, key), *cells])} |")
    return lines


def _place(result: ModelResult | None) -> str:
    return "–" if result is None else f"{result.share:.2f} / {result.transplant:+.2f}"


def _alarms(results: Sequence[ModelResult]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array([result.detections[name].alarm for result in results]) for name in results[0].detections}


def _drawn(
    alarms: dict[str, NDArray[np.float64]], count: int, random: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    chosen = random.integers(0, count, count)
    return {name: values[chosen] for name, values in alarms.items()}


def _auroc(high: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    """Share of pairs in which the first is larger; ties count half."""
    difference = high[:, None] - low[None]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _wilson(hits: int, count: int) -> Interval:
    z = 1.96
    centre, reach = hits + z**2 / 2, z * np.sqrt(hits * (count - hits) / count + z**2 / 4)
    return float((centre - reach) / (count + z**2)), float((centre + reach) / (count + z**2))
