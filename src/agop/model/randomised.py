"""A model's layers from the top down, and a copy of the model with random weights."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import ModelError
from agop.model.probe import probing, unwrapped
from agop.model.undisturbed import preserved_random_state


def layers_from_the_top(model: nn.Module, image: Tensor) -> list[str]:
    """Names of the modules with parameters of their own, the one that is called last for an image (1,C,H,W) first.

    A module that isn't called, such as a part of an attention, is beside the module that contains it.
    """
    calls: dict[nn.Module, int] = {}

    def note(module: nn.Module, _: Any) -> None:
        calls.setdefault(module, len(calls))

    with probing(model) as probe, torch.no_grad(), ExitStack() as handles:
        modules: dict[str, nn.Module] = dict(probe.model.named_modules())
        for module in modules.values():
            if not isinstance(module, torch.jit.ScriptModule):  # takes no hooks
                handles.callback(module.register_forward_pre_hook(note).remove)
        probe.forward(probe.placed(image))

    def place(name: str) -> int:
        while name and modules[name] not in calls:
            name = name.rpartition(".")[0]
        return calls.get(modules[name], 0)

    names = [name for name, module in modules.items() if any(True for _ in module.parameters(recurse=False))]
    return sorted(names, key=place)[::-1]


def copied(model: nn.Module) -> nn.Module:
    """A copy of the model, without DataParallel and torch.compile."""
    try:
        return copy.deepcopy(unwrapped(model))
    except Exception as error:  # the model's own code
        raise ModelError(f"the model can't be copied, so its weights can't be randomised: {error}") from error


def randomise(module: nn.Module, seed: int) -> None:
    """Initialise a module's own parameters again. Values that reset_parameters() doesn't change are permuted."""
    own = list(module.parameters(recurse=False))
    before = [parameter.detach().clone() for parameter in own]
    with preserved_random_state(own), torch.no_grad():
        torch.manual_seed(seed)
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
        for parameter in (new for new, old in zip(own, before, strict=True) if torch.equal(new, old)):
            order = torch.randperm(parameter.numel(), device="cpu").to(parameter.device)
            parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))
