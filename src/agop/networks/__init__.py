"""Networks of the benchmarks, and `load_model` for a user's own."""

from __future__ import annotations

from agop.model.loading import load_model
from agop.networks.cnn8by8 import CNN8by8
from agop.networks.cnn64 import CNN64
from agop.networks.llr import LLR
from agop.networks.mlp8by8 import MLP8by8
from agop.networks.resnet18 import ResNet18
from agop.networks.small_resnet import SmallResNet

__all__ = ["CNN64", "LLR", "CNN8by8", "MLP8by8", "ResNet18", "SmallResNet", "load_model"]
