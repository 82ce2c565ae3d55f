"""Whether AGOPs hold the same samples, by what their provenance says of these."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

from agop.errors import PriorError, warn
from agop.statistic.agop import AGOP, TRAINING

Part = dict[str, Any]
_UNSEEN = (
    "cannot see whether {} and {} share samples, only files of `agop fit` tell their pictures: if they do, these "
    "count twice"
)


def parts_of(prior: AGOP, name: str) -> list[Part]:
    """What an AGOP is merged from, with what tells its samples: itself, or what it was already merged from."""
    told = prior.provenance
    if merged := told.get("merged"):
        return list(merged)
    part = {"name": name, "count": prior.count, "digest": _digest(prior)}
    part |= {key: told[key] for key in ("rank", "ranks", "steps") if key in told}
    if told.get("kind") == TRAINING:
        part["parameters"] = told.get("parameters") or told["model"]["weights"]
    pictures = (told.get("data") or {}).get("pictures")
    return [part | ({"pictures": pictures} if pictures else {})]


def check_apart(priors: Sequence[AGOP], names: Sequence[str]) -> None:
    """Raise if some samples would be counted twice, warn if that cannot be seen."""
    parts = [parts_of(prior, name) for prior, name in zip(priors, names, strict=True)]
    unseen = None
    for (ours, name), (theirs, other) in combinations(zip(parts, names, strict=True), 2):
        for a, b in product(ours, theirs):
            is_training = "parameters" in a
            for why in _against_ranks(a, b) if is_training else _against_pictures(a, b):
                raise PriorError(f"{name} and {other} {why}")
            if not is_training and not ("pictures" in a and "pictures" in b):
                unseen = unseen or _UNSEEN.format(name, other)
    if unseen:
        warn(unseen)


def _against_ranks(a: Part, b: Part) -> Iterator[str]:
    """Why two AGOPs of a training do not go together: only those of different ranks at one step do."""
    if "rank" not in a or "rank" not in b:
        yield "do not go together: what finalize() gives already holds all of its training, give it alone"
    elif a["ranks"] != b["ranks"] or (a["steps"] == b["steps"] and a["parameters"] != b["parameters"]):
        yield "are of two trainings: give the snapshots that the ranks of one training wrote"
    elif a["rank"] == b["rank"]:
        yield f"are snapshots of one rank, {a['rank']}: the later holds the earlier, which would count twice, give one"
    elif a["steps"] != b["steps"]:
        yield f"are of steps {a['steps']} and {b['steps']}: give the snapshots of all ranks at one step"


def _against_pictures(a: Part, b: Part) -> Iterator[str]:
    """Why two AGOPs of one checkpoint do not go together: they hold the same samples, as far as can be seen."""
    seen = "pictures" in a and "pictures" in b
    same_rank = "rank" in a and [a["rank"], a["ranks"]] == [b.get("rank"), b.get("ranks")]
    if not seen and a["digest"] == b["digest"]:
        # Other samples have equal numbers only if gradients do not depend on them: one file is then the mean of both.
        yield "hold the same samples, which would count twice: give one, all their numbers are equal"
    elif not seen and same_rank:
        yield f"are snapshots of one rank, {a['rank']}, whose samples would count twice: give the later"
    elif seen and not _are_shares(a, b) and set(a["pictures"]["some"]) & set(b["pictures"]["some"]):
        yield "hold the same pictures, which would count twice: give one"


def _are_shares(a: Part, b: Part) -> bool:
    """True for two ranks of several that have shared the same pictures among them."""
    return (
        "rank" in a and "rank" in b and a["rank"] != b["rank"] and a["ranks"] == b["ranks"]
        and a["pictures"] == b["pictures"]
    )  # fmt: skip


def _digest(prior: AGOP) -> str:
    digest = hashlib.sha256(str(prior.count).encode())
    for tensor in (prior.diagonal, prior.class_diagonals, prior.class_counts):
        if tensor is not None:
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
