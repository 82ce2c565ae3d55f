"""Scores as text: methods by metrics, with the intervals and marks of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from agop.metrics import Metric
from agop.report.estimate import ANY, Estimate, Range
from agop.report.numbers import interval, number
from agop.report.winners import ABOVE, LEVEL, WON, marks
from agop.runs.controls import is_control, is_model_independent

_WIDTH = 120
_LEGEND = {
    WON: "best method",
    LEVEL: "not significantly different from it (paired test at 5 %, corrected for the number of methods)",
    ABOVE: "control that scores higher",
    "↓": "lower is better",
}


@dataclass(frozen=True)
class _Column:
    """Scores (N,) of all methods by one metric."""

    metric: Metric
    scores: Mapping[str, Tensor]
    signed: bool

    def texts(self) -> list[str]:
        """The metric's label, then mean, interval and mark of each method."""
        estimates = {method: self._estimate(values) for method, values in self.scores.items()}
        by_method = self._marks({method: estimate for method, estimate in estimates.items() if estimate is not None})
        cells = (
            f"{_text(estimate)} {by_method.get(method, '')}".rstrip() if estimate else "–"
            for method, estimate in estimates.items()
        )
        return [self.metric.label + ("" if self.metric.higher_is_better else " ↓"), *cells]

    def _estimate(self, values: Tensor) -> Estimate | None:
        low, high = self.metric.bounds
        return _estimate(values, (-high if self.signed else low, high))

    def _marks(self, estimates: dict[str, Estimate]) -> dict[str, str]:
        """The report's marks. As there, a method with less than half of the samples isn't compared."""
        most = max((len(estimate.values) for estimate in estimates.values()), default=0)
        rivals = [m for m, estimate in estimates.items() if not is_control(m) and 2 * len(estimate.values) >= most]
        return marks(estimates, rivals, self._lead, up=self.metric.higher_is_better)

    def _lead(self, a: str, b: str) -> Estimate | None:
        """How much better method a is than b, on the samples that both have."""
        difference = self.scores[a] - self.scores[b]
        return _estimate(difference if self.metric.higher_is_better else -difference, ANY)


def score_lines(
    scores: Mapping[str, Mapping[str, Tensor]],
    metrics: list[Metric],
    milliseconds: Mapping[str, float],
    *,
    signed: bool,
    unit: str = "images",
) -> list[str]:
    """Lines of a table of methods by metrics, and what its marks mean. Wide tables are split by columns."""
    by_metric = [_Column(metric, {m: of[metric.name] for m, of in scores.items()}, signed) for metric in metrics]
    columns = [column.texts() for column in by_metric]
    columns.append(["ms", *(number(milliseconds[method], "milliseconds") for method in scores)])
    count = len(next(iter(next(iter(scores.values())).values())))
    lines = [f"means over {unit} (N = {count:,}) with 95 % intervals", *_pieces(["", *scores], columns)]
    shown = "".join(text for column in columns for text in column)
    lines += [f"{mark} {meaning}" for mark, meaning in _LEGEND.items() if mark in shown]
    return [*lines, *_control_lines([method for method in scores if is_control(method)])]


def _control_lines(controls: list[str]) -> list[str]:
    """Which of the methods are controls, and what they depend on."""
    independent = [control for control in controls if is_model_independent(control)]
    others = [control for control in controls if control not in independent]
    lines = [f"controls, which don't depend on the model: {', '.join(independent)}"] if independent else []
    return [*lines, f"controls, which depend on the model in part: {', '.join(others)}"] if others else lines


def _estimate(values: Tensor, bounds: Range) -> Estimate | None:
    """Mean of the defined values (N,) with its interval; None without any."""
    defined = tuple(values[~values.isnan()].tolist())
    return Estimate(defined, bounds) if defined else None


def _text(estimate: Estimate) -> str:
    return f"{number(estimate.mean, '')} {interval(estimate, '')}".rstrip()


def _pieces(names: list[str], columns: list[list[str]]) -> Iterator[str]:
    """Lines of the table, as many columns beside each other as fit."""
    widths = [max(map(len, column)) for column in columns]
    name_width = max(map(len, names))
    start = 0
    while start < len(columns):
        end = start + 1
        while end < len(columns) and name_width + sum(widths[start : end + 1]) + 2 * (end + 1 - start) <= _WIDTH:
            end += 1
        for row, name in enumerate(names):
            cells = (
                column[row].ljust(width) for column, width in zip(columns[start:end], widths[start:end], strict=True)
            )
            yield "  ".join([name.ljust(name_width), *cells]).rstrip()
        start = end
