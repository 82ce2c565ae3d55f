"""select(): which method's maps to trust for a model, on images that its prior hasn't seen."""

from __future__ import annotations

import html
import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from agop.collect.fit import fit
from agop.collect.tune import SCORED, tune
from agop.errors import AGOPError, AGOPWarning, InputError, ModelError, recorded_warnings, warn
from agop.evaluation.sanity import Sanity, layers_from_the_top, randomised, rank_correlation
from agop.evaluation.scoring import all_logits
from agop.explanation import Methods, check_type, explain, methods_by_name
from agop.methods import Method, create
from agop.metrics.faithfulness import srg
from agop.model.outputs import (
    Forward,
    Output,
    OutputLike,
    check_range,
    class_count,
    labels_for,
    output_for,
    predicted,
)
from agop.model.probe import check_images, check_model, rows_for
from agop.model.state import unwrapped
from agop.prior.agop import AGOP
from agop.prior.merge import merge
from agop.processes import track
from agop.report.folder import is_control
from agop.report.run import best_methods
from agop.stats import Estimate, estimate, finite
from agop.tables import Table, counted, number

DEFAULT_METHODS = (
    "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "agop-weighted", "agop", "expected-gradients",
)  # fmt: skip
RANDOM = "random"
# Half of the images are scored, at least 4.
_ENOUGH = 8
# Images that are scored by default: as many as have these values, 12 to 48. Most of the time goes into methods with 50
# gradients per image.
_VALUES, _FEWEST, _MOST = 16 * 3 * 64 * 64, 12, 48
# Other images, which give priors and fill deleted pixels, at most.
_MOST_OTHERS = 400
# Images whose maps are compared with those of random weights, and with those of another half of the data.
_COMPARED = 4
# Images that are filled with pixels of the same other image.
_GROUP = 8
# A method is recommended if its SRG is this much above that of random maps.
_LEAST = 0.01
# A cheaper method is named if it costs less than this share of the first.
_CHEAPER = 0.5


def select(
    model: nn.Module,
    images: Tensor,
    labels: object = None,
    prior: AGOP | None = None,
    methods: Methods | None = None,
    *,
    count: int | None = None,
    batch_size: int | None = None,
    progress: bool = True,
    seed: int = 0,
    output: OutputLike | None = None,
    forward: Forward | None = None,
) -> Selection:
    """Which method's maps to trust for this model, on images (N,C,H,W) that the prior hasn't seen.

    Some random images are explained and scored by SRG, insertion minus deletion. The others fill deleted pixels, and
    give the priors of two halves of the data, and the prior if there is none.
    Blücher et al., "Decoupling Pixel Flipping and Occlusion Strategy for Consistent XAI Benchmarks", 2024.

    Args:
        model: The model.
        images: Images (N,C,H,W), at least 8.
        labels: Classes (N,) to explain; by default the predicted ones.
        prior: The model's AGOP; computed if None.
        methods: Names or instances; by default seven that suit the model. Random maps are always compared.
        count: Images to score, at most half of them; by default 12 to 48, depending on their size.
        batch_size: Images per pass.
        progress: Show a progress bar.
        seed: Chooses the images and the draws.
        output: As in `explain`, the same for all images; by default that of the prior, or the logit.
        forward: As in `explain`.

    Returns:
        A `Selection`: a row per method, `best` and a `recommendation`.

    Raises:
        InputError: Too few images, or unusable arguments.
        PriorError: The prior doesn't fit the images, or lacks what a method needs.

    Example:
        >>> selection = agop.select(model, images, labels, prior)
        >>> print(selection.recommendation)
    """
    check_model(model)
    check_images(images, volumes=True)
    by_name = None if methods is None else methods_by_name(methods)
    if count is not None and count < 2:
        raise InputError(f"count is {count}: give at least 2 images to score, or None")
    if len(images) < _ENOUGH:
        raise InputError(f"got {counted(len(images), 'image')}: give at least {_ENOUGH}; half of them are scored")
    check_type(prior)
    model, rows = unwrapped(model), rows_for(images, batch_size, model)
    named = "logit" if prior is None else prior.provenance.output
    explained, targets = output_for(named if output is None else output, forward), torch.zeros(len(images)).long()
    if explained.has_classes:
        logits = all_logits(model, images if labels is None else images[:1], rows, explained)
        targets = predicted(logits) if labels is None else labels_for(labels, len(images)).cpu()
        check_range(targets, class_count(logits), "label")
    elif labels is not None:
        raise InputError(f"labels= is for outputs with classes, not for {explained.name}: omit it")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    scored = min(len(images) // 2, _default_count(images) if count is None else count)
    chosen, others = order[:scored], order[scored : scored + _MOST_OTHERS]
    fill = images[others.to(images.device)]
    priors = Priors.of(model, fill, targets[others], prior, rows, progress=progress, per_class=False, output=explained)
    own = targets[chosen] if explained.has_classes else None
    judge = Judge(model, images[chosen.to(images.device)], own, fill, priors, rows, seed, explained)
    return compare(judge, by_name, progress=progress)


def select_on_halves(
    model: nn.Module, fill: Tensor, images: Tensor, labels: Tensor, priors: Priors, rows: int, seed: int, *,
    progress: bool,
) -> tuple[Selection | None, tuple[str, ...]]:  # fmt: skip
    """The default methods on some of the images. None with the reason for a model that can't be copied."""
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[: _default_count(images)]
    try:
        judge = Judge(model, images[chosen], labels[chosen], fill, priors, rows, seed)
    except (InputError, ModelError) as error:
        return None, (f"maps weren't compared: {error}",)
    return compare(judge, progress=progress), ()


def compare(judge: Judge, methods: Mapping[str, Method] | None = None, *, progress: bool = True) -> Selection:
    """The methods by name beside random maps, by default those that suit the model and its prior."""
    notes: list[str] = []
    results: list[Judged] = []
    by_name = {**(methods or {name: create(name) for name in DEFAULT_METHODS}), RANDOM: create(RANDOM)}
    for name, method in track(by_name.items(), "comparing maps", show=progress):
        try:
            with recorded_warnings() as messages:
                results.append(judge.judged(name, method))
        except AGOPError as error:
            if methods is not None:
                raise
            notes.append(f"{name} was skipped: {error}")
            continue
        notes += [f"{name}: {message}" for message in messages]
    costs = [result.milliseconds for result in results if result.method == "vanilla"]
    gradient = costs[0] if costs else judge.timed_maps(create("vanilla"))[1]
    return Selection(tuple(results), len(judge.images), gradient, tuple(notes))


def _default_count(images: Tensor) -> int:
    """Number of images (N,C,H,W) to score: fewer large ones."""
    return max(_FEWEST, min(_MOST, _VALUES // images[0].numel()))


@dataclass(frozen=True)
class Priors:
    """The prior, and those of two halves of the images that propose."""

    whole: AGOP
    halves: tuple[AGOP, AGOP]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        prior: AGOP | None,
        rows: int,
        *,
        progress: bool,
        per_class: bool = True,
        output: OutputLike | None = None,
    ) -> Priors:
        """The prior, computed from the images if there is none, or none per class."""
        if prior is not None:
            prior.check(model, images)
        if per_class and prior is not None and prior.class_diagonals is None:
            warn("the prior has no diagonals per class: one is computed, as with agop.fit(per_class=True)")
            prior = None
        options: dict[str, Any] = {
            "patches": prior is None or prior.patch_matrix is not None,
            "output": output or ("logit" if prior is None else prior.provenance.output),
            "per_class": per_class,
            "progress": progress,
        }
        halves = []
        for odd in (0, 1):
            parts = (torch.split(tensor[odd::2], rows) for tensor in (images, labels))
            halves.append(fit(model, list(zip(*parts, strict=True)), batch_size=rows, tune=False, **options))
        if prior is None:
            sample = images[:: -(-len(images) // SCORED)]
            prior = tune(model, merge(halves), sample, output, progress=progress)
        return cls(prior, (halves[0], halves[1]))


@dataclass(frozen=True, eq=False)
class Judged:
    """SRG (N,) of a method's maps, the check with random weights, the stability, and milliseconds per image.

    The stability is NaN for a method whose maps don't depend on data or draws.
    """

    method: str
    scores: Tensor
    sanity: Sanity
    stability: float
    milliseconds: float


@dataclass(eq=False)
class Judge:
    """Images (N,C,H,W) to score with targets (N,), other images that fill deleted pixels, and the priors.

    `random_model` is a copy of the model whose weights are all random.
    """

    model: nn.Module
    images: Tensor
    targets: Tensor | None
    fill: Tensor
    priors: Priors
    rows: int
    seed: int
    output: Output | None = None

    def __post_init__(self) -> None:
        self.output = self.output or output_for(self.priors.whole.provenance.output)
        layers = layers_from_the_top(self.model, self.images[:1], self.output)
        (self.random_model,) = randomised(self.model, [layers], self.seed)

    def judged(self, name: str, method: Method) -> Judged:
        """The method's scores."""
        maps, milliseconds = self.timed_maps(method)
        return Judged(name, self._srg(maps), self._sanity(name, method, maps), self._stability(method), milliseconds)

    def timed_maps(self, method: Method) -> tuple[Tensor, float]:
        """Maps (N,H,W) of all images, and milliseconds per image, after a warm-up on the first one."""
        self._few_maps(self.model, method, self.priors.whole, 1)
        start = time.perf_counter()
        maps = self._maps(self.model, method, self.priors.whole, len(self.images))
        return maps, (time.perf_counter() - start) * 1e3 / len(maps)

    def _srg(self, maps: Tensor) -> Tensor:
        """SRG (N,) in groups of images, each filled with another image: the same for every method."""
        gains = []
        for start in range(0, len(maps), _GROUP):
            rows = slice(start, start + _GROUP)
            group = self.images[rows], maps[rows], None if self.targets is None else self.targets[rows]
            options: dict[str, Any] = {"seed": self.seed + start, "batch_size": self.rows, "output": self.output}
            gains.append(srg(self.model, *group, references=self.fill, draws=1, **options))
        return torch.cat(gains).cpu()

    def _sanity(self, name: str, method: Method, maps: Tensor) -> Sanity:
        """The last step of `agop.sanity`: all weights are random, the prior is that of the trained model."""
        trained = maps[:_COMPARED]
        random = self._few_maps(self.random_model, method, self.priors.whole)
        correlations = rank_correlation(trained, random)[None]
        return Sanity(name, (("all",),), correlations, torch.equal(trained, random), method.needs_prior)

    def _stability(self, method: Method) -> float:
        """Mean rank correlation of maps made twice: priors of two halves of the data, and two seeds of the draws."""
        seeded = any(field.name == "seed" for field in fields(method))
        if not (method.needs_prior or method.needs_references or seeded):
            return math.nan
        other: Any = replace(method, seed=method.seed + 1) if seeded else method  # type: ignore[attr-defined,call-arg]
        pairs = zip((method, other), self.priors.halves, strict=True)
        return float(rank_correlation(*(self._few_maps(self.model, *pair) for pair in pairs)).nanmean())

    def _few_maps(self, model: nn.Module, method: Method, prior: AGOP, count: int = _COMPARED) -> Tensor:
        """Maps of the first images, without warnings: the prior may come from other weights on purpose."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AGOPWarning)
            return self._maps(model, method, prior, count)

    def _maps(self, model: nn.Module, method: Method, prior: AGOP, count: int) -> Tensor:
        targets, output = None if self.targets is None else self.targets[:count], self.output or "logit"
        return explain(
            model, self.images[:count], method, prior, targets, batch_size=self.rows, nan="skip", output=output
        )


COLUMNS = ("method", "SRG", "behind the best", "random weights", "stability", "ms per image", "gradients")


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
        methods. Controls and methods whose maps don't depend on the weights don't compete. The first must be
        significantly above random maps, after the same correction, and not by next to nothing.
        """
        contenders, methods = self._contenders(), len(self._rivals())
        above = self._lead(contenders[0], RANDOM) if contenders else None
        clear = above is not None and above.mean >= _LEAST and above.significant(methods)
        return tuple(contenders) if clear else ()

    @property
    def recommendation(self) -> str:
        """Which method to use and why, in one sentence or two."""
        best, contenders, means = self.best, self._contenders(), self._means()
        if not contenders:
            return "No map can be recommended: no method's maps depend on the model's weights."
        if not best:
            return (
                f"No map can be recommended on {self.images} images: the SRG of {contenders[0]}, the highest, is "
                f"{means[contenders[0]]:.2f}, not clearly above that of random maps, {means[RANDOM]:.2f}."
            )
        values = ", ".join(f"{means[name]:.2f}" for name in best)
        if len(best) > 1:
            names = f"{', '.join(best[:-1])} or {best[-1]}"
            text = f"Use {names}: their SRG ({values}) can't be distinguished on {self.images} images."
        else:
            above = "random maps" if len(self._rivals()) == 1 else "all other methods"
            text = (
                f"Use {best[0]}: its SRG of {values} is significantly above that of {above}, and its maps change when "
                "the weights are randomised."
            )
        costs = {result.method: result.milliseconds for result in self.results}
        if cheap := [name for name in best if costs[name] < _CHEAPER * costs[best[0]]]:
            text += f" {cheap[0]} costs less than half of {best[0]}."
        if out := [r.method for r in self.results if r.sanity.model_independent and not is_control(r.method)]:
            text += f" Not considered: {', '.join(out)}, with nearly the same maps for random weights."
        return text

    @property
    def table(self) -> tuple[dict[str, Any], ...]:
        """A row per method as JSON values, highest SRG first, controls last. None: undefined, or it doesn't apply."""
        best, means, first = self.best, self._means(), next(iter(self._contenders()), None)
        rows = [
            {
                "method": result.method,
                "control": is_control(result.method),
                "best": result.method in best,
                "srg": _json(estimate(result.scores, (-1.0, 1.0))),
                "behind": _json(self._lead(first, result.method)) if first not in (None, result.method) else None,
                "random_weights": finite(float(result.sanity.correlations.nanmean())),
                "model_independent": result.sanity.model_independent,
                "stability": finite(result.stability),
                "milliseconds": result.milliseconds,
                "gradients": result.milliseconds / self.gradient,
            }
            for result in self.results
        ]
        return tuple(sorted(rows, key=lambda row: (row["control"], -means[row["method"]])))

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
        """The table as text, a row per method, below COLUMNS."""
        return [
            (
                row["method"] + (" (control)" if row["control"] else " ★" if row["best"] else ""),
                _text(row["srg"]),
                _text(row["behind"]),
                _text(row["random_weights"]) + (", independent of the model" if row["model_independent"] else ""),
                _text(row["stability"]),
                number(row["milliseconds"], "milliseconds"),
                f"{row['gradients']:.1f}",
            )
            for row in self.table
        ]

    @property
    def legend(self) -> str:
        """What the columns of the table are."""
        return (
            f"SRG: insertion minus deletion, mean over {self.images} images with 95 % intervals, about 0 for random "
            "maps. Behind the best: paired difference of SRG. Random weights: rank correlation with maps of the same "
            "model with random weights, 1 if the weights don't matter. Stability: rank correlation of maps with priors "
            "of two halves of the data and two seeds, a dash if a method uses neither. Gradients: time per image, in "
            "gradients. ★: recommended, no other method is significantly ahead after correction for the number of "
            "methods."
        )

    def __repr__(self) -> str:
        return "\n".join([*Table(COLUMNS, self.texts()).text(), *self.notes, self.recommendation])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in (self.recommendation, *self.notes, self.legend))
        return f"<div>{Table(COLUMNS, self.texts()).html()}{lines}</div>"

    def _rivals(self) -> dict[str, Estimate]:
        """SRG of the methods that compete: those with at least half of the images."""
        return {
            result.method: mean
            for result in self.results
            if not is_control(result.method) and not result.sanity.model_independent
            and (mean := estimate(result.scores, (-1.0, 1.0))) is not None
            and 2 * len(mean.values) >= self.images
        }  # fmt: skip

    def _contenders(self) -> list[str]:
        """The rivals that no other one is ahead of, highest SRG first."""
        return best_methods(self._rivals(), self._lead, up=True)

    def _lead(self, a: str, b: str) -> Estimate | None:
        """SRG of a minus that of b, on the images that both have."""
        scores = {result.method: result.scores for result in self.results}
        return estimate(scores[a] - scores[b])

    def _means(self) -> dict[str, float]:
        """Mean SRG by method, −inf if it is undefined for all images."""
        return {result.method: float(result.scores.nanmean().nan_to_num(-math.inf)) for result in self.results}


def _json(mean: Estimate | None) -> dict[str, Any] | None:
    if mean is None:
        return None
    ends = None if mean.interval is None else list(mean.interval)
    return {"mean": mean.mean, "interval": ends, "images": len(mean.values)}


def _text(value: Any) -> str:
    """A number, or a mean with its interval; a dash if it is undefined."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2f}"
    ends = value["interval"]
    return f"{value['mean']:.2f}" + ("" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]")
