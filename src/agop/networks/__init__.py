"""Networks of the paper, and `load_model` for a user's own."""

from __future__ import annotations

from agop.model.loading import load_model
from agop.networks.cnn8by8 import CNN8by8
from agop.networks.resnet18 import ResNet18

__all__ = ["CNN8by8", "ResNet18", "load_model"]
