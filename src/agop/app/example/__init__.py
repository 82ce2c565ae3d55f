"""The example of `agop app`: a small trained network, its AGOP file and three images (docs/make_app_example.py)."""

from pathlib import Path
from typing import Any

from agop.bench.networks import CNN8by8
from agop.model.load import load_weights

FOLDER = Path(__file__).parent
WEIGHTS, PRIOR, NAMES = FOLDER / "network.safetensors", FOLDER / "agop.safetensors", FOLDER / "names.txt"
# The example as arguments of `agop app`.
ARGUMENTS: dict[str, Any] = {
    "model": "agop.app.example:network",
    "prior": PRIOR,
    "names": NAMES,
    "size": "8",
    "mean": "0.5",
    "std": "0.5",
    "gray": True,
    "layer": "conv3",
}


def network() -> CNN8by8:
    """Network trained to distinguish a T from an L in noise."""
    model = CNN8by8()
    load_weights(model, WEIGHTS)
    return model


def images() -> list[Path]:
    """Example images: 8×8, gray."""
    return sorted(FOLDER.glob("*.png"))
