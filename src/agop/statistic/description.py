"""An AGOP in words: what it holds, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agop.model.targets import CONTRAST
from agop.statistic.provenance import TRAINING

if TYPE_CHECKING:
    from agop.statistic.agop import AGOP

_LISTED_NAMES = 10


def facts(prior: AGOP) -> dict[str, str]:
    """Facts about an AGOP by name, without those that it doesn't record."""
    provenance = prior.provenance
    lines = {
        "statistic": _statistic(prior),
        "patches": patches_text(prior),
        "sketch": sketch_text(prior),
        "references": references_text(prior),
        "samples": _samples(prior),
        "model": ", ".join(f"{part} {digest[:8]}" for part, digest in provenance.model.items()),
        "images": preprocessing_text(provenance.data.preprocessing) or "preprocessing not recorded",
        "classes": _listed(provenance.data.classes),
        "merged from": ", ".join(part.name for part in provenance.merged),
        "made with": ", ".join(f"{package} {version}" for package, version in provenance.versions.items()),
    }
    return {name: text for name, text in lines.items() if text}


def patches_text(prior: AGOP) -> str:
    """The patch matrix in words: its size and layer. Empty if there is none."""
    if prior.patch_matrix is None:
        return ""
    return f"patch matrix of {len(prior.patch_matrix)} channels, layer {prior.layer}"


def sketch_text(prior: AGOP) -> str:
    """The sketch in words: its rank, and the share of tr(M) that it lacks. Empty if there is none."""
    if prior.sketch is None:
        return ""
    missing = prior.residual_share
    return f"{len(prior.sketch)} rows with {100 * (1 - missing):.1f} % of tr(M); tr(r)/tr(M) = {missing:.3g}"


def references_text(prior: AGOP) -> str:
    """The reference images in words. Empty if there are none."""
    if prior.references is None:
        return ""
    return f"the file contains {len(prior.references):,} training image{'s' if len(prior.references) > 1 else ''}"


def preprocessing_text(fields: Mapping[str, Any]) -> str:
    """Preprocessing in words, from the fields of a `Preprocessing`: "32×32 RGB, mean 0.5, std 0.25"."""
    parts = []
    size, resize = fields.get("size"), fields.get("resize")
    if size:
        scaled = f" cut from {_sides(resize)}" if resize and resize != size else ""
        parts.append(f"{_sides(size)} {'gray' if fields.get('gray') else 'RGB'}{scaled}")
    for name in ("mean", "std"):
        if name in fields:
            parts.append(f"{name} {','.join(f'{value:g}' for value in fields[name])}")
    return ", ".join(parts)


def _statistic(prior: AGOP) -> str:
    shape = "×".join(map(str, prior.diagonal.shape))
    classes = "" if prior.class_diagonals is None else f", also by class ({len(prior.class_diagonals):,} classes)"
    how = {None: "", TRAINING: ", collected during training"}.get(prior.provenance.kind, f", {prior.provenance.kind}")
    steps = "" if prior.provenance.steps is None else f" ({prior.provenance.steps:,} steps)"
    contrast = ", gradients of the contrast" if prior.provenance.output == CONTRAST else ""
    return f"diag(M) of {shape} input values{classes}{how}{steps}{contrast}"


def _samples(prior: AGOP) -> str:
    provenance = prior.provenance
    correct = ", the correctly classified ones" if provenance.options.get("only_correct") else ""
    skipped = f"; {provenance.skipped:,} skipped: NaN or infinite gradients" if provenance.skipped else ""
    accuracy = ""
    if provenance.accuracy is not None:
        accuracy = f"; accuracy {100 * provenance.accuracy:.1f} % of {provenance.labelled:,}"
    return f"{prior.count:,} counted{correct}{skipped}{accuracy}"


def _listed(names: tuple[str, ...]) -> str:
    more = f" … ({len(names):,})" if len(names) > _LISTED_NAMES else ""
    return ", ".join(names[:_LISTED_NAMES]) + more


def _sides(size: Any) -> str:
    return "×".join(map(str, size)) if isinstance(size, (list, tuple)) else str(size)
