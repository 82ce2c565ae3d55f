"""The objects of a scene: shapes, sizes, materials and colours."""

from __future__ import annotations

from dataclasses import dataclass

from agop.registry import unknown_name_error
from agop.scenarios.clevr.render.vectors import Point

SHAPES = ("cube", "sphere", "cylinder")
# In the order of the labels.
MATERIALS = ("metal", "rubber")
# Half an object's height and width.
RADIUS = {"large": 0.7, "small": 0.35}
COLORS = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}


@dataclass(frozen=True)
class SceneObject:
    """An object on the floor at (x, y), rotated by `rotation` degrees about its vertical axis."""

    shape: str
    size: str
    material: str
    color: str
    x: float
    y: float
    rotation: float

    def __post_init__(self) -> None:
        for field, names in (("shape", SHAPES), ("size", RADIUS), ("material", MATERIALS), ("color", COLORS)):
            if getattr(self, field) not in names:
                raise unknown_name_error(field, getattr(self, field), list(names))

    @property
    def radius(self) -> float:
        """Half its height and width."""
        return RADIUS[self.size]

    @property
    def centre(self) -> Point:
        """Its centre. The floor is at z = 0."""
        return self.x, self.y, self.radius
