"""The paper's task: which material dominates a scene? Asked by a question about the material of one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agop.scenarios.clevr.render.objects import MATERIALS

# Kinds of masks: all objects, the queried object, all objects of its material.
KINDS = ("all_objects", "single_object", "dominant")


@dataclass(frozen=True)
class Sample:
    """The queried object, its material as label (0 metal, 1 rubber), and all objects of that material."""

    queried: int
    label: int
    dominant: tuple[int, ...]


def sample_about(queried: int, materials: Sequence[str]) -> Sample | None:
    """The sample of a question about one object, or None if fewer than 60 % of the objects share its material."""
    label = MATERIALS.index(materials[queried])
    dominant = tuple(index for index, material in enumerate(materials) if material == materials[queried])
    return Sample(queried, label, dominant) if 5 * len(dominant) >= 3 * len(materials) else None
