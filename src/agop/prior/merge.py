"""merge(): AGOPs of parts of the data as one AGOP of all data."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from agop.errors import InputError, PriorError
from agop.prior.accumulator import Sketch, mean_and_deviation
from agop.prior.agop import AGOP, TRAINING, MergedPart


def merge(priors: Sequence[AGOP], names: Sequence[str] = ()) -> AGOP:
    """The AGOP of all samples in these AGOPs, as one process over all data would compute it.

    Whether they share samples, which would count twice, isn't checked, except for snapshots of one rank.

    Args:
        priors: AGOPs of one model over different images, with the same options and preprocessing; or the snapshots of
            all ranks of one training at one step.
        names: Names of the AGOPs in errors and in the provenance, by default "AGOP 1" and so on.

    Returns:
        The AGOP of all samples.

    Raises:
        PriorError: The AGOPs come from different models or options, or two are snapshots of the same rank.

    Example:
        >>> parts = [agop.AGOP.load("a.safetensors"), agop.AGOP.load("b.safetensors")]
        >>> agop.merge(parts).save("whole.safetensors")
    """
    if len(priors) < 2:
        raise InputError(f"merge got {len(priors)} AGOP: pass two or more")
    names = names or [f"AGOP {place}" for place in range(1, len(priors) + 1)]
    for prior, name in zip(priors[1:], names[1:], strict=True):
        _check_compatible(priors[0], names[0], prior, name)
    parts = _parts(priors, names)
    count = sum(prior.count for prior in priors)
    first, each = priors[0].provenance, [prior.provenance for prior in priors]
    labelled = [(provenance.labelled, provenance.correct) for provenance in each]
    known = all(numbers != (None, None) for numbers in labelled)
    # Buffers such as batch norm's means may differ between the ranks of a training: the first rank's fingerprint is
    # as good as any.
    provenance = replace(
        first,
        count=count,
        skipped=sum(provenance.skipped for provenance in each),
        labelled=sum(number or 0 for number, _ in labelled) if known else None,
        correct=sum(number or 0 for _, number in labelled) if known else None,
        majority=None,
        versions=first.versions if all(provenance.versions == first.versions for provenance in each) else {},
        rank=None,
        ranks=None,
        training=None,
        data=replace(first.data, pictures=None),
        merged=parts,
    )
    diagonal = _sum([prior.diagonal.double() * prior.count for prior in priors]) / count
    return AGOP(diagonal, count, provenance=provenance, **_optional(priors, count))


def _optional(priors: Sequence[AGOP], count: int) -> dict[str, Any]:
    """The merged tensors of each kind that all AGOPs have."""

    def all_of(name: str) -> list[Tensor]:
        tensors = [getattr(prior, name) for prior in priors]
        return [] if any(tensor is None for tensor in tensors) else tensors

    merged: dict[str, Any] = {}
    if counts := all_of("class_counts"):
        merged["class_counts"] = _sum(counts)
        for name in ("class_diagonals", "class_patch_matrices"):
            if means := all_of(name):
                weights = [own.reshape(-1, *[1] * (means[0].ndim - 1)) for own in counts]
                # A class without samples has means of NaN, which must not reach the sums of the others.
                sums = [torch.where(w > 0, mean.double() * w, 0.0) for mean, w in zip(means, weights, strict=True)]
                merged[name] = _sum(sums) / _sum(weights)
    if matrices := all_of("patch_matrix"):
        merged["patch_matrix"] = (
            _sum([matrix * prior.count for matrix, prior in zip(matrices, priors, strict=True)]) / count
        )
    if sketches := all_of("sketch"):
        merged["sketch"] = Sketch.of(len(sketches[0]), [*sketches]).rows()
    if moments := all_of("image_moments"):
        both = [own.double() for own in moments]
        squares = [torch.stack([mean, mean.square() + deviation.square()]) for mean, deviation in both]
        total = _sum([own * prior.count for own, prior in zip(squares, priors, strict=True)])
        merged["image_moments"] = mean_and_deviation(total, count)
    return merged


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).sum(dim=0)


def _parts(priors: Sequence[AGOP], names: Sequence[str]) -> tuple[MergedPart, ...]:
    """The AGOPs that each was merged from, or the AGOP itself. Raises if two are snapshots of the same rank."""
    known: dict[Any, str] = {}
    parts: list[MergedPart] = []
    for prior, name in zip(priors, names, strict=True):
        provenance = prior.provenance
        images = None if provenance.data.pictures is None else provenance.data.pictures.names
        own = MergedPart(name, prior.count, provenance.rank, provenance.training, images)
        for part in provenance.merged or (own,):
            key = (part.rank, part.training, part.images)
            if part.rank is not None and key in known:
                raise PriorError(
                    f"{known[key]} and {name} are snapshots of the same rank, {part.rank}, whose samples would count "
                    "twice: pass the later one"
                )
            known[key] = name
            parts.append(part)
    return tuple(parts)


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
    # The same after a file as before: lists instead of tuples.
    preprocessing = json.loads(json.dumps(provenance.data.preprocessing))
    weights: dict[str, Any] = {"weights": provenance.model.get("weights")}
    if provenance.kind == TRAINING:
        # Not the weights with their buffers: under DDP the buffers of the ranks differ.
        weights = {"step": provenance.steps, "parameters": provenance.parameters or provenance.model.get("weights")}
    # Files of earlier versions also have the number of training images, `references`.
    options = {f"option {name}": value for name, value in provenance.options.items() if name != "references"}
    return {
        "image shape": "×".join(map(str, prior.diagonal.shape)),
        "architecture": provenance.model.get("architecture"),
        **weights,
        "number of classes": provenance.classes,
        "per class": prior.class_diagonals is not None,
        "layer of the patch matrix": prior.layer,
        **options,
        "class folders": provenance.data.classes or None,
        **{f"preprocessing {name}": value for name, value in preprocessing.items()},
    }


def _in_words(value: Any) -> str:
    if value is None:
        return "(not recorded)"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
