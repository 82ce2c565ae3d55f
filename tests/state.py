"""The state of a model and the process that a call must not change."""

import random

import numpy as np
import torch
from torch import nn


def state_of(model: nn.Module) -> dict:
    return {
        "modes": [module.training for module in model.modules()],
        "parameters": [(p.detach().clone(), p.requires_grad, p._version) for p in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "buffers": [(name, id(b), b.clone()) for name, b in model.named_buffers()],
        "hooks": [_hooks(module) for module in model.modules()],
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }


def _hooks(module: nn.Module) -> list:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [dict(getattr(module, kind)) for kind in kinds]


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def assert_same(before: dict, after: dict) -> None:
    changed = [key for key in before if not same(before[key], after[key])]
    assert not changed, f"changed: {changed}"
