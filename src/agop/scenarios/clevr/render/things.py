"""The things that stand in a scene: their shapes, sizes, materials and colours."""

from __future__ import annotations

from dataclasses import dataclass

from agop.errors import UnknownNameError
from agop.scenarios.clevr.render.vectors import Point

SHAPES = ("cube", "sphere", "cylinder")
# Their order is the order of the labels.
MATERIALS = ("metal", "rubber")
# Half the height of a thing, and half its width.
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
class Thing:
    """One thing on the floor at (x, y), turned by `rotation` degrees about its upright axis."""

    shape: str
    size: str
    material: str
    color: str
    x: float
    y: float
    rotation: float

    def __post_init__(self) -> None:
        for what, known in (("shape", SHAPES), ("size", RADIUS), ("material", MATERIALS), ("color", COLORS)):
            name = getattr(self, what)
            if name not in known:
                raise UnknownNameError(f"no {what} is named {name!r}: take one of {', '.join(known)}")

    @property
    def radius(self) -> float:
        """Half its height, and half its width."""
        return RADIUS[self.size]

    @property
    def centre(self) -> Point:
        """Its middle; it stands on the floor, z = 0."""
        return self.x, self.y, self.radius
