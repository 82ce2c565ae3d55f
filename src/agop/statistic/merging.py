"""merge(): AGOPs of parts of the data as one AGOP of all data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from agop.errors import InputError, PriorError
from agop.statistic.agop import AGOP
from agop.statistic.moments import mean_and_deviation, sums_from_moments
from agop.statistic.overlap import check_no_overlap, parts_of
from agop.statistic.provenance import TRAINING, MergedPart, Provenance
from agop.statistic.reservoir import Reservoir
from agop.statistic.sketch import Sketch

# Options that files of earlier versions don't record.
_NEW_OPTIONS: dict[str, Any] = {"rank": 0, "output": "predicted", "references": 0}


def merge(priors: Sequence[AGOP], names: Sequence[str] = ()) -> AGOP:
    """The AGOP of all samples in these AGOPs, as one process over all data would compute it.

    They must come from one model (or from the ranks of one training at one step), with the same options and
    preprocessing, and share no samples. Warns if shared samples can't be detected. `names` label the AGOPs in errors
    and in the provenance.
    """
    if len(priors) < 2:
        raise InputError(f"merge got {len(priors)} AGOP: pass two or more")
    names = names or [f"AGOP {place}" for place in range(1, len(priors) + 1)]
    for prior, name in zip(priors[1:], names[1:], strict=True):
        _check_compatible(priors[0], names[0], prior, name)
    parts = [parts_of(prior, name) for prior, name in zip(priors, names, strict=True)]
    check_no_overlap(parts, names)
    count = sum(prior.count for prior in priors)
    provenance = _merge_provenance([prior.provenance for prior in priors], count, parts)
    return AGOP(
        _sum([prior.diagonal.double() * prior.count for prior in priors]) / count,
        count,
        _class_means(priors, "class_diagonals"),
        _sum_all([prior.class_counts for prior in priors]),
        provenance,
        _patch_matrix(priors, count),
        _class_means(priors, "class_patch_matrices"),
        _sketch(priors),
        _image_moments(priors, count),
        _mean_direction(priors, count),
        _references(priors),
    )


def _class_means(priors: Sequence[AGOP], name: str) -> Tensor | None:
    """Means (K,…) per class of all samples. NaN for a class without samples. None unless all have them."""
    sums, counts = [], []
    for prior in priors:
        means = getattr(prior, name)
        if means is None or prior.class_counts is None:
            return None
        weights = prior.class_counts.reshape(-1, *[1] * (means.ndim - 1))
        # A class without samples has means of NaN, which must not reach the sums of the others.
        sums.append(torch.where(weights > 0, means.double() * weights, 0.0))
        counts.append(weights)
    return _sum(sums) / _sum(counts)


def _patch_matrix(priors: Sequence[AGOP], count: int) -> Tensor | None:
    sums = _sum_all([None if prior.patch_matrix is None else prior.patch_matrix * prior.count for prior in priors])
    return None if sums is None else sums / count


def _sketch(priors: Sequence[AGOP]) -> Tensor | None:
    """One sketch from those of all AGOPs. None unless all have one."""
    merged: Sketch | None = None
    for prior in priors:
        if prior.sketch is None:
            return None
        merged = merged or Sketch(len(prior.sketch))
        merged.update(prior.sketch)
    return None if merged is None else merged.rows()


def _mean_direction(priors: Sequence[AGOP], count: int) -> Tensor | None:
    sums = _sum_all([None if p.mean_direction is None else p.mean_direction.double() * p.count for p in priors])
    return None if sums is None else (sums / count).float()


def _image_moments(priors: Sequence[AGOP], count: int) -> Tensor | None:
    moments = [(prior.image_moments, prior.count) for prior in priors]
    sums = _sum_all([None if own is None else sums_from_moments(own, samples) for own, samples in moments])
    return None if sums is None else mean_and_deviation(sums, count)


def _references(priors: Sequence[AGOP]) -> Tensor | None:
    """The images that one process over all data would keep."""
    size = (_NEW_OPTIONS | priors[0].provenance.options)["references"]
    return Reservoir.of(size, [prior.references for prior in priors]).images() if size else None


def _sum_all(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """The sum, or None unless there are all."""
    known = [tensor for tensor in tensors if tensor is not None]
    return _sum(known) if len(known) == len(tensors) else None


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).sum(dim=0)


def _sum_if_known(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _merge_provenance(each: Sequence[Provenance], count: int, parts: Sequence[Sequence[MergedPart]]) -> Provenance:
    # Buffers such as batch norm's means may differ between the ranks of a training: the first rank's fingerprint is
    # as good as any.
    first = each[0]
    return replace(
        first,
        count=count,
        skipped=sum(provenance.skipped for provenance in each),
        labelled=_sum_if_known([provenance.labelled for provenance in each]),
        correct=_sum_if_known([provenance.correct for provenance in each]),
        versions=first.versions if all(provenance.versions == first.versions for provenance in each) else {},
        rank=None,
        ranks=None,
        parameters=None,
        training=None,
        data=replace(first.data, pictures=None),
        merged=tuple(part for own in parts for part in own),
    )


def _check_compatible(a: AGOP, name: str, b: AGOP, other: str) -> None:
    """Raise unless two AGOPs come from one model, with the same options and preprocessing."""
    if (a.provenance.kind == TRAINING) != (b.provenance.kind == TRAINING):
        of_training, of_fit = (name, other) if a.provenance.kind == TRAINING else (other, name)
        raise PriorError(
            f"{other} can't be merged with {name}: {of_training} was collected during training, {of_fit} from a "
            "trained model: use one of them alone, or merge files of `agop fit`, or the snapshots of a training's ranks"
        )
    ours, theirs = _must_match(a), _must_match(b)
    differences = [
        f"{what} {_in_words(theirs.get(what))} vs {_in_words(ours.get(what))}"
        for what in dict.fromkeys([*ours, *theirs])
        if ours.get(what) != theirs.get(what)
    ]
    if differences:
        raise PriorError(
            f"{other} can't be merged with {name}: {'; '.join(differences)}: merge files of one model with the same "
            "options, class folders and preprocessing"
        )


def _must_match(prior: AGOP) -> dict[str, Any]:
    """The values that must be equal in AGOPs to be merged, by name."""
    provenance = prior.provenance
    preprocessing = provenance.data.to_dict().get("preprocessing", {})
    # A training's parameters are compared in check_no_overlap: under DDP the buffers of the ranks differ.
    weights = {} if provenance.kind == TRAINING else {"weights": provenance.model.get("weights")}
    return {
        "image shape": "×".join(map(str, prior.diagonal.shape)),
        "kind": provenance.kind,
        "architecture": provenance.model.get("architecture"),
        **weights,
        "number of classes": provenance.classes,
        "per class": prior.class_diagonals is not None,
        "layer of the patch matrix": prior.layer,
        **{f"option {name}": value for name, value in (_NEW_OPTIONS | provenance.options).items()},
        "class folders": provenance.data.classes or None,
        **{f"preprocessing {name}": value for name, value in preprocessing.items()},
    }


def _in_words(value: Any) -> str:
    if value is None:
        return "(not recorded)"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
