"""repair(): a copy of a model whose last layer no longer uses what an audit found."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agop.auditing.audit import chance, compared
from agop.auditing.candidates import PatchCandidate
from agop.auditing.data import (
    AuditedModel,
    Pairs,
    Predictions,
    Stage,
    class_label,
    draw_evenly,
    generator_for,
    read_sample,
)
from agop.auditing.findings import Audit, Compared, Finding
from agop.auditing.interventions import TransplantElsewhere
from agop.auditing.subgroups import Names, names_of
from agop.auditing.tests import Screening, screen, trial_on
from agop.auditing.thresholds import TEST_HOSTS, TEST_PAIRS
from agop.errors import InputError, LayerError
from agop.model.layers import named_layer
from agop.model.probe import Probe, captured
from agop.model.state import FINGERPRINT, fingerprint, unwrapped

Columns = NDArray[np.float64]
# Ridge constants, as shares of the mean variance of the features, and parts of the images for the choice among them.
_RIDGES, _FOLDS = tuple(10.0**power for power in range(-3, 2)), 5


def repair(
    model: nn.Module,
    audit: Audit,
    images: Tensor | Iterable[Any],
    labels: Any = None,
    *,
    groups: Names | Sequence[Any] | None = None,
    layer: str | None = None,
    batch_size: int | None = None,
    progress: bool = True,
) -> nn.Module:
    """A copy of a model whose last linear layer is fitted anew, so that an audit's findings say nothing about a class.

    The layer's inputs are computed for the images that proposed the findings, with each finding pasted into all of them
    and removed from all of them. Ridge regression on both, and on their difference, gives the new weights. For known
    groups that decide, the images as they are take part, and each group of each class counts alike (DFR).

    Args:
        model: The model. It isn't changed.
        audit: Its audit, with findings.
        images: The images of the audit, or others: a tensor (N,C,H,W) with `labels`, or a loader.
        labels: Classes (N,) of a tensor of images.
        groups: Known groups of other images than those of the audit, as in `agop.audit`. Those that the model wasn't
            trained on, with as many of each group, repair best.
        layer: Name of the last linear layer; by default the one that returns the logits.
        batch_size: Images per pass.
        progress: Show progress bars.

    Returns:
        The new model. `agop.auditing.repair.Repair.of` also compares both on the images that tested the findings.

    Raises:
        InputError: The audit has no findings, or is of another model.
        LayerError: No linear layer returns the logits.

    Example:
        >>> repaired = agop.repair(model, agop.audit(model, images, labels), images, labels)

    Kirichenko et al. 2023, "Last Layer Re-Training is Sufficient for Robustness to Spurious Correlations".
    """
    return Repair.of(model, audit, images, labels, layer, batch_size, groups=groups, progress=progress).model


@dataclass(frozen=True, eq=False)
class Repair:
    """A repaired model, with what became of each finding on the images that tested them.

    `accuracy` is that before and after. `groups` (F,2,2,K) are accuracies by finding, before and after, without and
    with the finding in all images, and class; the smallest is that of the worst group. `subgroups` are those before and
    after of the images of a class and a known group.
    """

    model: nn.Module
    rows: tuple[Compared, ...]
    accuracy: tuple[float, float]
    groups: Columns
    subgroups: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: nn.Module, audit: Audit, images: Any, labels: Any = None, layer: str | None = None,
        batch_size: int | None = None, *, groups: Names | Sequence[Any] | None = None, progress: bool = True,
    ) -> Repair:  # fmt: skip
        """Repair a model: see `repair`."""
        if not audit.sentences:
            raise InputError("the audit has no findings: there is nothing to repair")
        if audit.fingerprint != fingerprint(model):
            raise InputError("the audit is of another model, or of other weights: audit this model")
        sample = read_sample(model, images, labels, audit.per_class, audit.seed, progress=progress)
        if audit.subgroups:
            audit = replace(audit, groups=names_of(audit.groups if groups is None else groups, sample))
        repaired = copy.deepcopy(unwrapped(model))
        vars(repaired).pop(FINGERPRINT, None)  # of a prepared copy: it carries that of its model
        with AuditedModel.of(model, sample, batch_size) as audited:
            if groups is None and (problem := chance(audited, sample, "the model", "nothing was repaired")):
                raise InputError(problem)
            name = head_name(audited.first.probe, sample.images[:2], layer)
            set_head(repaired.get_submodule(name), audited.first, name, audit)
            with AuditedModel.of(repaired, sample, batch_size) as other:
                verified = [_verified((audited, other), finding, audit) for finding in audit.findings]
                accuracies = audited.second.accuracy, other.second.accuracy
                known = _by_group((audited.second, other.second), audit)
        sides = np.array([groups for _, groups in verified])
        return cls(repaired, tuple(row for row, _ in verified), accuracies, sides, known)

    @property
    def lines(self) -> list[str]:
        """A sentence about the accuracy, and two per finding."""
        before, after = (100 * share for share in self.accuracy)
        lines = [f"The repaired model, on the images that tested the findings: accuracy {before:.1f} → {after:.1f} %."]
        for row, pair in zip(self.rows, 100 * self.groups, strict=True):
            without, having, worst = (
                "{:.0f} → {:.0f} %".format(*values)
                for values in (pair[:, 0].mean(axis=1), pair[:, 1].mean(axis=1), pair.min(axis=(1, 2)))
            )
            accuracies = f"Accuracy without it in all images {without}, with it {having}, worst group {worst}."
            lines.append(f"{row.sentence.replace('in the other model', 'in the repaired model')} {accuracies}")
        if self.subgroups:
            changes = [
                f"{name}, {group} {100 * before:.0f} → {100 * after:.0f} %"
                for (name, group), (before, after) in self.subgroups.items()
            ]
            lines.append(f"Accuracy by class and group: {'; '.join(changes)}.")
        return lines


def head_name(probe: Probe, images: Tensor, layer: str | None) -> str:
    """Name of the linear layer that returns the logits."""
    linear = [module for module in probe.model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise LayerError("the model has no linear layer: the last one is what a repair changes")
    with torch.no_grad(), captured(linear) as outputs:
        logits = probe.forward(probe.placed(images))
    if layer is not None:
        module = named_layer(probe.model, layer)[1]
        if not isinstance(module, nn.Linear) or module.out_features != logits.shape[1]:
            raise LayerError(f"layer {layer!r} isn't a linear layer with {logits.shape[1]} outputs: give the last one")
        return layer
    for module, output in outputs.items():
        if torch.equal(output, logits):
            return named_layer(probe.model, module)[0]
    raise LayerError("no linear layer of the model returns its logits: give the name of the last one, layer=")


def inputs_of(predictions: Predictions, name: str, images: Tensor) -> Tensor:
    """The inputs (N,D) of a layer for images, in float64."""
    collected: list[Tensor] = []
    head = predictions.probe.model.get_submodule(name)
    handle = head.register_forward_pre_hook(lambda _, inputs: collected.append(inputs[0].detach().cpu().double()))
    try:
        predictions.probe.logits(images)
    finally:
        handle.remove()
    return torch.cat(collected)


def versions(predictions: Predictions, finding: Finding, seed: int) -> tuple[Screening, list[Any]]:
    """All images without and with a finding, as functions from a slice of the images to the changed images."""
    candidate, images = finding.candidate, predictions.split.images
    generator = generator_for(seed, candidate.class_index, Stage.REPAIR)
    screening = screen(predictions, candidate, TEST_HOSTS, generator, finding.rule)
    every, made = torch.arange(len(images)), list[Any]()
    for donors in (screening.members[~screening.contains], screening.carriers):
        drawn = draw_evenly(donors, len(images), generator)
        change = candidate.intervention(Pairs(predictions, candidate.class_index, every, drawn))
        if isinstance(candidate, PatchCandidate) and not made:  # what looks most like it gets another image's pixels
            corners, size = candidate.matches(images).corners, torch.tensor(images.shape[2:])
            change = TransplantElsewhere(corners, candidate.side, shares=(corners + 0.5) / (size - candidate.side + 1))
        made.append(lambda part, c=change, d=drawn: c.of(part).changed(images[part], images[d[part]]))
    return screening, made


def set_head(head: Any, predictions: Predictions, name: str, audit: Audit) -> None:
    """Give the layer weights that are fitted to all images without and with each finding."""
    features = [
        [
            torch.cat([inputs_of(predictions, name, make(part)) for part in predictions.parts()]).numpy()
            for make in versions(predictions, finding, audit.seed)[1]
        ]
        for finding in audit.findings
    ]
    labels, classes, weights = predictions.split.labels.numpy(), predictions.before.shape[1], None
    if audit.subgroups:
        pictures = predictions.split.pictures
        features.append([inputs_of(predictions, name, predictions.split.images).numpy()] * 2)
        of = [f"{label} {audit.groups[picture]}" for label, picture in zip(labels, pictures, strict=True)]
        _, places, counts = np.unique(of, return_inverse=True, return_counts=True)
        weights = 1 / counts[places]
    put(head, *fit_head(np.array(features), labels, classes, weights))


def put(head: Any, weight: Columns, bias: Columns) -> None:
    """Replace the weights of a linear layer by weights (K,D) and bias (K,), which it gets if it has none."""
    if head.out_features == 1:  # a single logit
        weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
    for name, values in (("weight", weight), ("bias", bias)):
        setattr(head, name, nn.Parameter(torch.from_numpy(values).to(head.weight)))


def fit_head(features: Columns, labels: Any, classes: int, weights: Columns | None = None) -> tuple[Columns, Columns]:
    """Weights (K,D) and bias (K,) by ridge regression on features (F,2,N,D), with the constant chosen on other folds.

    The squared error of all 2F versions of an image, plus the squared difference of the scores of both versions of a
    finding. Classes count alike, unless images have `weights` (N,). Scores are then scaled so that their softmax fits
    the labels best.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    folds, targets = np.arange(len(labels)) % _FOLDS, np.eye(classes)[labels]
    weights = 1 / np.bincount(labels)[labels] if weights is None else weights
    best = (np.inf, 0.0, 1.0)
    for ridge in _RIDGES:
        scores = np.empty((*features.shape[:3], classes))
        for fold in range(_FOLDS):
            inside = folds != fold
            weight, bias = _ridge(features[:, :, inside], targets[inside], weights[inside], ridge)
            scores[:, :, ~inside] = features[:, :, ~inside] @ weight.T + bias

        def loss(logarithm: float, scores: Columns = scores) -> float:
            fit = (log_softmax(np.exp(logarithm) * scores, axis=3) * targets).sum(axis=3)
            return -float(fit.mean(axis=(0, 1)) @ weights)

        found = minimize_scalar(loss, bounds=(-3, 5), method="bounded")
        best = min(best, (found.fun, ridge, float(np.exp(found.x))))
    weight, bias = _ridge(features, targets, weights, best[1])
    return best[2] * weight, best[2] * bias


def _ridge(features: Columns, targets: Columns, weights: Columns, ridge: float) -> tuple[Columns, Columns]:
    """Weights (K,D) and bias (K,) from features (F,2,N,D), targets (N,K) and weights (N,)."""
    rows, shares = features.reshape(-1, *features.shape[2:]), weights / weights.sum()
    middle, level = (shares @ rows).mean(axis=0), shares @ targets
    centred, change = rows - middle, features[:, 1] - features[:, 0]

    def product(first: Columns, second: Columns) -> Columns:  # (V,N,D) and (V,N,E): the mean over versions and images
        return np.asarray(np.tensordot(first * shares[:, None], second, ((0, 1), (0, 1))) / len(first))

    covariance = product(centred, centred)
    constant = ridge * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    wanted = product(centred, np.broadcast_to(targets - level, (len(rows), *targets.shape)))
    weight = np.linalg.solve(covariance + product(change, change) + constant, wanted).T
    return weight, level - weight @ middle


def _by_group(predictions: Sequence[Predictions], audit: Audit) -> dict[tuple[str, str], tuple[float, float]]:
    """Accuracies of two models on the images of each class and known group, if groups decide."""
    split = predictions[0].split
    rows = list(zip(split.labels.tolist(), map(audit.groups.get, split.pictures), strict=True))
    before, after = (each.before.argmax(dim=1) == split.labels for each in predictions)
    accuracies = {}
    for index, group in sorted(set(rows) if audit.subgroups else ()):
        own = torch.tensor([row == (index, group) for row in rows])
        shares = float(before[own].double().mean()), float(after[own].double().mean())
        accuracies[class_label(audit.class_names[index]), str(group)] = shares
    return accuracies


def _verified(models: tuple[AuditedModel, AuditedModel], finding: Finding, audit: Audit) -> tuple[Compared, Any]:
    """What became of a finding on the images that test it, and accuracies: before and after, without and with it."""
    second, generator = models[0].second, generator_for(audit.seed, finding.class_index, Stage.TEST)
    screening, made = versions(second, finding, audit.seed)
    pairs = second.pairs(finding.class_index, screening.carriers, TEST_PAIRS, generator)
    trial = trial_on(pairs, screening, screening, 1.0, generator)
    labels = second.split.labels
    right = [
        [torch.cat([each.second.probe.predict(make(part)).cpu() for part in second.parts()]) == labels for make in made]
        for each in models
    ]
    present = sorted(set(labels.tolist()))
    groups = [[[float(hits[labels == index].double().mean()) for index in present] for hits in pair] for pair in right]
    return compared(models, trial, finding, audit.class_names, audit.seed), groups
