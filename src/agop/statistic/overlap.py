"""Detects samples that two AGOPs share, from their provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import combinations, product

from agop.errors import PriorError, warn
from agop.statistic.agop import AGOP
from agop.statistic.agop_file import add_bytes
from agop.statistic.provenance import TRAINING, MergedPart


def parts_of(prior: AGOP, name: str) -> tuple[MergedPart, ...]:
    """The AGOPs that this one was merged from, or the AGOP itself."""
    provenance = prior.provenance
    if provenance.merged:
        return provenance.merged
    parameters = None
    if provenance.kind == TRAINING:
        parameters = provenance.parameters or provenance.model.get("weights", "")
    part = MergedPart(
        name,
        prior.count,
        _digest(prior),
        provenance.rank,
        provenance.ranks,
        provenance.steps,
        parameters,
        provenance.data.pictures,
    )
    return (part,)


def check_no_overlap(parts: Sequence[Sequence[MergedPart]], names: Sequence[str]) -> None:
    """Raise if samples would count twice. Warn if the parts don't record their samples."""
    unknown = None
    for (ours, name), (theirs, other) in combinations(zip(parts, names, strict=True), 2):
        for a, b in product(ours, theirs):
            problem = _image_overlap(a, b) if a.parameters is None else _rank_overlap(a, b)
            if problem:
                raise PriorError(f"{name} and {other} {problem}")
            if a.parameters is None and (a.pictures is None or b.pictures is None):
                unknown = unknown or (name, other)
    if unknown:
        name, other = unknown
        warn(
            f"cannot check whether {name} and {other} share samples, which would count twice: only files of `agop fit` "
            "record their images"
        )


def _rank_overlap(a: MergedPart, b: MergedPart) -> str:
    """Why two AGOPs of a training can't be merged, or "". Only different ranks at the same step can."""
    if a.rank is None or b.rank is None:
        return "can't be merged: the result of finalize() already covers its whole training, use it alone"
    if a.ranks != b.ranks or (a.steps == b.steps and a.parameters != b.parameters):
        return "come from two trainings: pass the snapshots that the ranks of one training wrote"
    if a.rank == b.rank:
        return f"are snapshots of the same rank, {a.rank}: the later one includes the earlier one, pass one of them"
    if a.steps != b.steps:
        return f"are snapshots of steps {a.steps} and {b.steps}: pass the snapshots of all ranks at one step"
    return ""


def _image_overlap(a: MergedPart, b: MergedPart) -> str:
    """Why two AGOPs of one checkpoint can't be merged, or ""."""
    if a.pictures is None or b.pictures is None:
        if a.digest == b.digest:
            # Different samples give equal numbers only if the gradients don't depend on them: one is enough.
            return "hold the same samples (all numbers are equal), which would count twice: pass one of them"
        if a.rank is not None and (a.rank, a.ranks) == (b.rank, b.ranks):
            return f"are snapshots of the same rank, {a.rank}, whose samples would count twice: pass the later one"
    elif not _are_shares(a, b) and set(a.pictures.some) & set(b.pictures.some):
        return "hold the same images, which would count twice: pass one of them"
    return ""


def _are_shares(a: MergedPart, b: MergedPart) -> bool:
    """True if two ranks of one job have split the same images between them."""
    different_ranks = a.rank is not None and b.rank is not None and a.rank != b.rank
    return different_ranks and a.ranks == b.ranks and a.pictures == b.pictures


def _digest(prior: AGOP) -> str:
    digest = hashlib.sha256(str(prior.count).encode())
    for tensor in (prior.diagonal, prior.class_diagonals, prior.class_counts):
        if tensor is not None:
            add_bytes(digest, tensor)
    return digest.hexdigest()[:16]
