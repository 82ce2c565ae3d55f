"""Benchmarks: networks, scenarios with known truth, and their training and scoring into a run folder."""

from agop.bench import scenarios
from agop.bench.networks import CNN64, LLR, CNN8by8, MLP8by8, ResNet18, SmallResNet, efficientnet_lite0

__all__ = ["CNN64", "LLR", "CNN8by8", "MLP8by8", "ResNet18", "SmallResNet", "efficientnet_lite0", "scenarios"]
