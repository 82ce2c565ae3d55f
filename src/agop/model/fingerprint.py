"""A short name for a model's architecture and weights, to tell models apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from agop.model.probe import unwrapped

# Enough numbers of each tensor to see any training step; reading all of them would cost a forward pass.
_SAMPLES_A_TENSOR = 16
_CARRIED = "_agop_fingerprint"


def fingerprint(model: nn.Module) -> dict[str, str]:
    """Digests of the architecture (names and shapes) and of the weights (evenly spaced samples)."""
    model = unwrapped(model)
    carried: dict[str, str] | None = getattr(model, _CARRIED, None)
    if carried is not None:
        return dict(carried)
    architecture, weights = hashlib.sha256(), hashlib.sha256()
    for name, tensor in _tensors(model):
        architecture.update(f"{name}{tuple(tensor.shape)}".encode())
        weights.update(_sampled(tensor).numpy().tobytes())
    return {"architecture": architecture.hexdigest()[:16], "weights": weights.hexdigest()[:16]}


def parameters_digest(model: nn.Module) -> str:
    """A digest of the parameters alone: what the ranks of a training have in common at each step."""
    digest = hashlib.sha256()
    for tensor in unwrapped(model).parameters():
        digest.update(_sampled(tensor).numpy().tobytes())
    return digest.hexdigest()[:16]


def carry_fingerprint(model: nn.Module, of: nn.Module) -> None:
    """Let a rewritten copy answer with the fingerprint of the model it was made from."""
    setattr(model, _CARRIED, fingerprint(of))


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _sampled(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    places = torch.linspace(0, max(0, len(flat) - 1), min(len(flat), _SAMPLES_A_TENSOR), device="cpu").long()
    return flat[places.to(flat.device)].to("cpu", torch.float64)
