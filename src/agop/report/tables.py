"""Tables of a run: methods by metrics, one per scenario, background and kind of masks, with the paper's values."""

from collections.abc import Sequence
from dataclasses import dataclass

from agop.report.folder import is_control
from agop.report.run import Place, Run, paper
from agop.stats import Estimate
from agop.tables import counted, interval, mean, number

# Benchmarks of the paper. A scenario called "linear" in another run isn't the paper's.
_PAPERS = ("xai-tris", "clevr-xai")
_PAPERS_MASKS = ("own", "true", "signed", "all_objects")


@dataclass(frozen=True)
class ScoreCell:
    """One score: ours with its interval, the paper's value, and whether ours is the best of its column."""

    metric: str
    ours: Estimate | None
    paper: float | None
    best: bool

    @property
    def mean(self) -> str:
        """The mean as text, a dash without a score."""
        return mean(self.ours, self.metric)

    @property
    def interval(self) -> str:
        """The interval in brackets, or an empty text."""
        return interval(self.ours, self.metric)

    @property
    def published(self) -> str:
        """The paper's value as text, or an empty text."""
        return "" if self.paper is None else number(self.paper, self.metric)


@dataclass(frozen=True)
class ScoreTable:
    """Methods by metrics of one scenario, background and kind of masks."""

    place: Place
    title: str
    accuracy: Estimate | None
    labels: dict[str, str]
    rows: dict[str, list[ScoreCell]]

    @property
    def cites_paper(self) -> bool:
        """True if the paper has a value for any cell."""
        return any(cell.published for row in self.rows.values() for cell in row)


def score_tables(run: Run) -> list[ScoreTable]:
    """All tables of a run, uncorrelated backgrounds first, then the variants, which were scored on fewer images."""
    tables = [_table(run, run.spec.methods, place) for place in run.places]
    if run.spec.sensitivity:
        note = f"; variants, on the first {run.spec.sensitivity_images} images"
        tables.append(_table(run, run.spec.sensitivity, run.places[0], note))
    return [table for table in tables if table.labels]


def _table(run: Run, methods: Sequence[str], place: Place, note: str = "") -> ScoreTable:
    """One table. Its title has the note, by default how many networks haven't learned their task."""
    scenario, background, masks = place
    # The paper has uncorrelated backgrounds, and one kind of CLEVR-XAI masks.
    cited = run.spec.benchmark in _PAPERS and background != "correlated" and masks in _PAPERS_MASKS
    published: dict[str, dict[str, float | None]] = paper().get(scenario, {}) if cited else {}
    scores = {
        metric: {method: run.estimate(scenario, background, method, metric, masks) for method in methods}
        for metric in run.metrics
    }
    scores = {metric: column for metric, column in scores.items() if any(column.values())}
    best = {metric: _best(run, column, metric, place) for metric, column in scores.items()}
    rows = {
        method: [
            ScoreCell(metric, column[method], published.get(method, {}).get(metric), method in best[metric])
            for metric, column in scores.items()
        ]
        for method in methods
    }
    about = {metric: run.metrics[metric] for metric in scores}
    labels = {metric: f"{of['label']}{'' if of['higher_is_better'] else ' ↓'}" for metric, of in about.items()}
    accuracy = run.estimate(scenario, background, "model", "accuracy")
    coverage = run.estimate(scenario, background, "masks", "coverage", masks)
    excluded = len(run.not_learned(scenario, background))
    if excluded and not note:
        note = f"; not learned, {excluded} of {counted(run.spec.seeds, 'seed')}"
    share = "" if coverage is None else f" covering {coverage.mean:.1%} of the pixels"
    same = sorted(run.equal_kinds(scenario, background, masks), key=lambda kind: kind != masks)  # its own is first
    kinds = "" if masks == "true" else f", {' and '.join(same)} masks{share}"
    title = f"{scenario} / {background}{kinds}{'' if accuracy is None else f', accuracy {accuracy}'}{note}"
    return ScoreTable(place, title, accuracy, labels, rows)


def _best(run: Run, scores: dict[str, Estimate | None], metric: str, place: Place) -> list[str]:
    """The best methods of a column, without controls. Means that round to the same number are equally best."""
    scenario, background, masks = place
    fair = [m for m in scores if not is_control(m) and run.fair(scenario, background, m, metric, masks)]
    means = {method: estimate.mean for method in fair if (estimate := scores[method])}
    if not means:
        return []
    best = (max if run.metrics[metric]["higher_is_better"] else min)(means.values())
    return [method for method, mean in means.items() if number(mean, metric) == number(best, metric)]
