"""The page's section "What it relies on": maps of the classes and patterns in patches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agop.auditing.reliance import Reliance
from agop.pictures.data_uri import data_uri
from agop.pictures.heat import heat, signed_picture

# Classes whose maps are shown, the most concentrated ones.
MOST_CLASSES = 24


@dataclass(frozen=True)
class Panel:
    """A picture (the address of an <img>), and what is below it."""

    picture: str
    name: str
    text: str = ""


@dataclass(frozen=True)
class RelianceView:
    """Sentences, maps of the classes, patterns, and what isn't shown."""

    consistency: str
    classes: list[Panel]
    hidden: int
    shared: list[str]
    filters: list[Panel]
    layer: str | None


def reliance_view(reliance: Reliance) -> RelianceView:
    """The section's pictures and sentences."""
    shown = list(reliance.concentrations)[:MOST_CLASSES]
    filters = reliance.filters
    return RelianceView(
        reliance.consistency.sentence,
        [
            Panel(
                data_uri(heat(np.asarray(reliance.maps[index]))),
                reliance.class_names[index],
                str(reliance.concentrations[index]),
            )
            for index in shown
        ],
        len(reliance.concentrations) - len(shown),
        reliance.shared.sentences(reliance.class_names),
        []
        if filters is None
        else [
            Panel(data_uri(signed_picture(vector)), percent)
            for vector, percent in zip(filters.vectors, filters.percents, strict=True)
        ],
        reliance.layer,
    )
