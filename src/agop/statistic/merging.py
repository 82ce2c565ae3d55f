"""merge(): AGOPs of shares of the data, made apart, as the one of all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from agop.errors import InputError, PriorError
from agop.statistic.agop import AGOP, FORMAT, TRAINING
from agop.statistic.overlap import check_apart, parts_of

Told = dict[str, Any]


def merge(priors: Sequence[AGOP], names: Sequence[str] = ()) -> AGOP:
    """The AGOP of all samples that these have counted: what one process over all of them would have made.

    They must be of one model (a hook's: of different ranks at one step of one training), with the same options and
    preprocessing, and share no samples: a warning says if that cannot be seen. `names` is what errors and
    the provenance call them.
    """
    if len(priors) < 2:
        raise InputError(f"there is nothing to merge in {len(priors)} AGOP: give two or more")
    names = names or [f"AGOP {place}" for place in range(1, len(priors) + 1)]
    for prior, name in zip(priors[1:], names[1:], strict=True):
        if why := _against(priors[0], names[0], prior, name):
            raise PriorError(f"{name} does not go with {names[0]}: {why}")
    check_apart(priors, names)
    count = sum(prior.count for prior in priors)
    diagonal = _total([prior.diagonal.double() * prior.count for prior in priors]) / count
    by_class, class_counts = _classes(priors)
    return AGOP(diagonal, count, by_class, class_counts, _provenance(priors, names, count))


def _classes(priors: Sequence[AGOP]) -> tuple[Tensor | None, Tensor | None]:
    """The diagonals (K,C,H,W) and counts (K,) of the classes; NaN for a class of which no part has a sample."""
    sums, counts = [], []
    for prior in priors:
        if prior.class_diagonals is None or prior.class_counts is None:
            return None, None
        weights = prior.class_counts[:, None, None, None]
        # A class without samples has a diagonal of NaN, which must not reach the others' sums.
        sums.append(torch.where(weights > 0, prior.class_diagonals.double() * weights, 0.0))
        counts.append(prior.class_counts)
    total = _total(counts)
    return _total(sums) / total[:, None, None, None], total


def _total(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(dim=0)


def _against(a: AGOP, name: str, b: AGOP, other: str) -> str:
    """Why two AGOPs do not go together and what to do; empty if nothing is against it."""
    training = [prior.provenance.get("kind") == TRAINING for prior in (a, b)]
    if training[0] != training[1]:
        of_training, of_fit = (name, other) if training[0] else (other, name)
        return (
            f"{of_training} was collected while a model trained, {of_fit} of a trained model: use one of them alone, "
            "or merge files of `agop fit`, or the snapshots of a training's ranks"
        )
    different = "; ".join(_differences(a, b))
    return different and f"{different}: merge files of one model with the same options, class folders and preprocessing"


def _differences(a: AGOP, b: AGOP) -> Iterator[str]:
    """In what two AGOPs differ that must be the same."""
    if a.diagonal.shape != b.diagonal.shape:
        yield f"images of shape {tuple(b.diagonal.shape)}, not {tuple(a.diagonal.shape)}"
    ours, theirs = _told(a), _told(b)
    for what in dict.fromkeys([*ours, *theirs]):
        here, there = theirs.get(what), ours.get(what)
        if here != there:
            said = "there" if here is None or there is None else "not"
            yield f"{what} {_in_words(here)}, {said} {_in_words(there)}"


def _in_words(value: Any) -> str:
    if value is None:
        return "not said"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _told(prior: AGOP) -> Told:
    """By name, what has to be the same in AGOPs that are merged."""
    told = _as_written(prior)
    model, data = told.get("model") or {}, told.get("data") or {}
    # For a training check_apart compares its parameters: under DDP the buffers of ranks differ.
    weights = {} if told.get("kind") == TRAINING else {"the weights are": model.get("weights")}
    return {
        "the kind is": told.get("kind"),
        "the architecture is": model.get("architecture"),
        **weights,
        "the number of classes is": told.get("classes"),
        "by class is": prior.class_diagonals is not None,
        **{f"the option {name} is": value for name, value in (told.get("options") or {}).items()},
        "the class folders are": data.get("classes"),
        **{f"the preprocessing's {name} is": value for name, value in (data.get("preprocessing") or {}).items()},
    }


def _as_written(prior: AGOP) -> Told:
    """The provenance as a file gives it back, in which a tuple is a list."""
    told: Told = json.loads(json.dumps(prior.provenance))
    return told


def _provenance(priors: Sequence[AGOP], names: Sequence[str], count: int) -> Told:
    """What all say alike, and what it was merged from, which says of each part what is its own."""
    each = [_as_written(prior) for prior in priors]
    own = ("rank", "ranks", "parameters")
    alike = {
        key: value for key, value in each[0].items()
        if key not in own and all(other.get(key) == value for other in each)
    }  # fmt: skip
    if "data" in each[0]:
        alike["data"] = {key: value for key, value in each[0]["data"].items() if key != "pictures"}
    # Ranks of a training at one step may differ in buffers, such as batch norm's means: the first's are as good as any.
    return (
        alike
        | ({"model": each[0]["model"]} if "model" in each[0] else {})
        | {
            "format": FORMAT,
            "count": count,
            "skipped": sum(prior.provenance.get("skipped", 0) for prior in priors),
            "merged": [part for prior, name in zip(priors, names, strict=True) for part in parts_of(prior, name)],
        }
    )
