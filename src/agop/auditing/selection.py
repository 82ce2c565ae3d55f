"""Selection: which method's maps to trust for a model, as a table and one sentence."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from agop.auditing.intervals import finite
from agop.auditing.judging import Judged
from agop.auditing.selection_text import LEGEND, cells, html_table, table_lines
from agop.report.estimate import ANY, Estimate
from agop.report.winners import best_methods
from agop.runs.controls import is_control

RANDOM = "random"
# A method is recommended if its SRG is this much above that of random maps.
_LEAST = 0.01
# A cheaper method is named if it costs less than this share of the first.
_CHEAPER = 0.5


@dataclass(frozen=True, repr=False)
class Selection:
    """Methods by their SRG, and which of them to use. `gradient` is the milliseconds of one gradient per image.

    `notes` says which methods were skipped and why.
    """

    results: tuple[Judged, ...]
    images: int
    gradient: float
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[str, ...]:
        """The methods to use, highest SRG first; empty if none is above random maps.

        As in a report: a method is excluded if another one is significantly ahead, after correction for the number of
        methods. Controls and methods whose maps don't depend on the weights don't compete.
        """
        contenders = self._best_contenders()
        return tuple(contenders) if contenders and self._above_random(contenders[0]) else ()

    @property
    def recommendation(self) -> str:
        """Which method to use and why, in one sentence or two."""
        contenders = self._best_contenders()
        if not contenders:
            return "No map can be recommended: no method's maps depend on the model's weights."
        if not self.best:
            first, random = (self._mean(name) for name in (contenders[0], RANDOM))
            return (
                f"No map can be recommended on {self.images} images: the SRG of {contenders[0]}, the highest, is "
                f"{first:.2f}, not clearly above that of random maps, {random:.2f}."
            )
        return self._use(self.best) + self._cheaper(self.best) + self._excluded()

    @property
    def table(self) -> tuple[dict[str, Any], ...]:
        """A row per method as JSON values, highest SRG first, controls last. None: undefined, or it doesn't apply."""
        order = sorted(self.results, key=lambda result: (is_control(result.method), -self._order(result)))
        return tuple(self._row(result) for result in order)

    def to_dict(self) -> dict[str, Any]:
        """The selection as JSON values."""
        return {
            "best": list(self.best),
            "recommendation": self.recommendation,
            "images": self.images,
            "gradient_milliseconds": self.gradient,
            "methods": list(self.table),
            "notes": list(self.notes),
        }

    def texts(self) -> list[tuple[str, ...]]:
        """The table as text, a row per method, below `selection_text.COLUMNS`."""
        return [cells(row) for row in self.table]

    @property
    def legend(self) -> str:
        """What the columns of the table are."""
        return LEGEND.format(images=self.images)

    def __repr__(self) -> str:
        return "\n".join([*table_lines(self.texts()), *self.notes, self.recommendation])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in (self.recommendation, *self.notes, self.legend))
        return f"<div>{html_table(self.texts())}{lines}</div>"

    @property
    def _scores(self) -> dict[str, Tensor]:
        return {result.method: result.scores for result in self.results}

    def _rivals(self) -> dict[str, Estimate]:
        """SRG of the methods that compete: those with at least half of the images."""
        estimates = {
            result.method: _estimate(result.scores, (-1.0, 1.0))
            for result in self.results
            if not is_control(result.method) and not result.sanity.model_independent
        }
        return {
            name: estimate
            for name, estimate in estimates.items()
            if estimate is not None and 2 * len(estimate.values) >= self.images
        }

    def _best_contenders(self) -> list[str]:
        return best_methods(self._rivals(), self._lead, up=True)

    def _lead(self, a: str, b: str) -> Estimate | None:
        """SRG of a minus that of b, on the images that both have."""
        return _estimate(self._scores[a] - self._scores[b], ANY)

    def _mean(self, name: str) -> float:
        return float(self._scores[name].nanmean())

    def _above_random(self, name: str) -> bool:
        """True if the SRG is significantly above that of random maps, and not by next to nothing."""
        above = self._lead(name, RANDOM)
        return above is not None and above.mean >= _LEAST and above.significant()

    def _use(self, best: tuple[str, ...]) -> str:
        means = [f"{self._mean(name):.2f}" for name in best]
        if len(best) > 1:
            names = f"{', '.join(best[:-1])} or {best[-1]}"
            return f"Use {names}: their SRG ({', '.join(means)}) can't be distinguished on {self.images} images."
        above = "random maps" if len(self._rivals()) == 1 else "all other methods"
        return (
            f"Use {best[0]}: its SRG of {means[0]} is significantly above that of {above}, and its maps change when "
            "the weights are randomised."
        )

    def _cheaper(self, best: tuple[str, ...]) -> str:
        costs = {result.method: result.milliseconds for result in self.results}
        cheap = [name for name in best if costs[name] < _CHEAPER * costs[best[0]]]
        return f" {cheap[0]} costs less than half of {best[0]}." if cheap else ""

    def _excluded(self) -> str:
        names = [r.method for r in self.results if r.sanity.model_independent and not is_control(r.method)]
        return f" Not considered: {', '.join(names)}, with nearly the same maps for random weights." if names else ""

    def _order(self, result: Judged) -> float:
        mean = self._mean(result.method)
        return -math.inf if math.isnan(mean) else mean

    def _row(self, result: Judged) -> dict[str, Any]:
        contenders = self._best_contenders()
        behind = self._lead(contenders[0], result.method) if contenders and contenders[0] != result.method else None
        return {
            "method": result.method,
            "control": is_control(result.method),
            "best": result.method in self.best,
            "srg": _json(_estimate(result.scores, (-1.0, 1.0))),
            "behind": _json(behind),
            "random_weights": finite(float(result.sanity.correlations.nanmean())),
            "model_independent": result.sanity.model_independent,
            "stability": finite(result.stability),
            "milliseconds": result.milliseconds,
            "gradients": result.milliseconds / self.gradient,
        }


def _estimate(values: Tensor, bounds: tuple[float, float]) -> Estimate | None:
    """Mean of the defined values (N,) with its interval; None without any."""
    defined = tuple(values[~values.isnan()].tolist())
    return Estimate(defined, bounds) if defined else None


def _json(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    low_high = None if estimate.interval is None else list(estimate.interval)
    return {"mean": estimate.mean, "interval": low_high, "images": len(estimate.values)}
