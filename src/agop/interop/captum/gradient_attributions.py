"""agop's methods as Captum attributions. They also work in Captum's NoiseTunnel and metrics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from captum.attr import GradientAttribution
from captum.log import log_usage
from torch import Tensor, nn

from agop.errors import InputError, PriorError
from agop.model.probe import at_least_float32, check_images, probing, unwrapped
from agop.model.targets import Target, target_indices
from agop.statistic.agop import AGOP


class _ImageAttribution(GradientAttribution):  # type: ignore[misc]  # Captum has no types
    """Base: attributions (N,C,H,W) of one tensor of images. target=None explains the predicted classes.

    In a NoiseTunnel, pass a target: without one, each noisy copy is explained for its own predicted class.
    """

    # NoiseTunnel calls the function that this decorator wraps.
    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(
        self, inputs: Tensor | tuple[Tensor], target: Target = None, additional_forward_args: Any = None
    ) -> Tensor | tuple[Tensor]:
        """Attributions (N,C,H,W) of the inputs (N,C,H,W). A tuple of inputs gives a tuple."""
        images = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
        check_images(images)
        extra = additional_forward_args
        arguments = extra if isinstance(extra, tuple) else () if extra is None else (extra,)
        one_for_all = isinstance(target, Tensor) and target.numel() == 1
        targets = target_indices(int(target) if one_for_all else target, len(images))  # type: ignore[arg-type]
        values = self._values(images, targets, arguments).to(images.device)
        return (values,) if isinstance(inputs, tuple) else values

    @abstractmethod
    def _values(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor: ...

    def _gradients(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        with probing(_as_module(self.forward_func, arguments)) as probe:
            if arguments and probe.mixes_samples and len(images) > 1:
                raise InputError(
                    "the model has additional arguments and a batch norm without running statistics, which mixes "
                    "samples: explain one image at a time"
                )
            values = probe.gradients(images, targets).values
        return values.to(at_least_float32(values.dtype))


class AGOPLocal(_ImageAttribution):
    """Signed gradients (N,C,H,W). `agop-local` and `vanilla` are their absolute value."""

    def _values(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        return self._gradients(images, targets, arguments)


class _PriorAttribution(_ImageAttribution):
    """Base of the attributions that use a prior."""

    def __init__(self, forward_func: Callable[..., Any], prior: AGOP) -> None:
        super().__init__(forward_func)
        if not isinstance(prior, AGOP):
            raise PriorError(f"prior is a {type(prior).__name__}: pass an agop.AGOP, for example agop.AGOP.load(path)")
        self.prior = prior

    def _check_prior(self, images: Tensor) -> None:
        if isinstance(self.forward_func, nn.Module):
            self.prior.check(self.forward_func, images)
        else:  # a function doesn't show whose weights it uses
            AGOP(self.prior.diagonal, self.prior.count).check(nn.Identity(), images)


class AGOPWeighted(_PriorAttribution):
    """Signed gradients times sqrt(diag(M) / max diag(M)): `agop-weighted` before channels are summed."""

    def _values(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        self._check_prior(images)
        gradients = self._gradients(images, targets, arguments)
        return gradients * self.prior.weights.to(gradients)


class AGOPGlobal(_PriorAttribution):
    """diag(M) for every image: `agop-global` before channels are summed. Doesn't run the model."""

    def _values(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        self._check_prior(images)
        diagonal = self.prior.diagonal.to(images.device, at_least_float32(images.dtype))
        return diagonal.expand(len(images), -1, -1, -1).clone()


def _as_module(forward_func: Any, arguments: tuple[Any, ...]) -> nn.Module:
    """Captum's forward function as a module of images alone."""
    if isinstance(forward_func, nn.Module):
        model = unwrapped(forward_func)
        return _FunctionModule(model, arguments) if arguments else model
    if not callable(forward_func):
        raise InputError(f"forward_func is a {type(forward_func).__name__}: pass a model, or a function of images")
    return _FunctionModule(forward_func, arguments)


class _FunctionModule(nn.Module):
    """A function with its additional arguments.

    A model becomes a submodule if it is the function itself or the owner of a bound method, so its state is restored.
    A model that a function only refers to isn't seen.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        self.owner = owner if isinstance(owner, nn.Module) else None
        self.function, self.arguments = function, arguments

    def forward(self, images: Tensor) -> Any:
        return self.function(images, *self.arguments)
