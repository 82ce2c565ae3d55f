"""Short digests of a model's architecture and weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from agop.model.probe import unwrapped

# Enough values per tensor to detect any training step. Reading all would cost as much as a forward pass.
_SAMPLES_PER_TENSOR = 16
_ATTRIBUTE = "_agop_fingerprint"


def fingerprint(model: nn.Module) -> dict[str, str]:
    """Digests of the architecture (names and shapes) and of the weights (evenly spaced samples)."""
    model = unwrapped(model)
    carried: dict[str, str] | None = getattr(model, _ATTRIBUTE, None)
    if carried is not None:
        return dict(carried)
    architecture, weights = hashlib.sha256(), hashlib.sha256()
    for name, tensor in _tensors(model):
        architecture.update(f"{name}{tuple(tensor.shape)}".encode())
        weights.update(_sampled(tensor).numpy().tobytes())
    return {"architecture": architecture.hexdigest()[:16], "weights": weights.hexdigest()[:16]}


def parameters_digest(model: nn.Module) -> str:
    """Digest of the parameters without buffers: equal on all ranks of a training at each step."""
    digest = hashlib.sha256()
    for tensor in unwrapped(model).parameters():
        digest.update(_sampled(tensor).numpy().tobytes())
    return digest.hexdigest()[:16]


def carry_fingerprint(model: nn.Module, of: nn.Module) -> None:
    """Give a rewritten copy the fingerprint of the original."""
    setattr(model, _ATTRIBUTE, fingerprint(of))


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _sampled(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    # float64 only for large tensors, whose indices float32 can't represent: existing fingerprints stay valid.
    dtype = torch.float32 if len(flat) <= 2**24 else torch.float64
    count = min(len(flat), _SAMPLES_PER_TENSOR)
    places = torch.linspace(0, max(0, len(flat) - 1), count, dtype=dtype, device="cpu").long()
    return flat[places.to(flat.device)].to("cpu", torch.float64)
