"""The example the page opens on: a small trained network, its AGOP file and three pictures. `make.py` makes them."""

from __future__ import annotations

from pathlib import Path

from agop.app.fields import Fields
from agop.model.weights import load_weights
from agop.networks import CNN8by8

FOLDER = Path(__file__).parent
WEIGHTS, PRIOR, NAMES = FOLDER / "network.safetensors", FOLDER / "agop.safetensors", FOLDER / "names.txt"


def network() -> CNN8by8:
    """The network that tells a T from an L in noise, trained."""
    model = CNN8by8()
    load_weights(model, WEIGHTS)
    return model


def fields() -> Fields:
    """What the page's fields say for the example."""
    return Fields(
        model="agop.app.example:network",
        prior=str(PRIOR),
        size="8",
        mean="0.5",
        std="0.5",
        gray=True,
        layer="conv3",
        names=str(NAMES),
    )


def pictures() -> list[Path]:
    """The pictures to click: 8×8, grey."""
    return sorted(FOLDER.glob("*.png"))
