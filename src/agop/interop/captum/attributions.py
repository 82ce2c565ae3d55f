"""Our methods as Captum's: each is a `captum.attr.GradientAttribution`, for its NoiseTunnel and its metrics, too."""

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


class _OneImageTensor(GradientAttribution):  # type: ignore[misc]  # Captum has no types
    """What ours share: attributions (N,C,H,W) of one tensor of images, for the predicted classes if target is None.

    Inside a NoiseTunnel give a target: without one, each noisy copy is explained for its own predicted class.
    """

    # NoiseTunnel calls the function under this decorator.
    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(
        self, inputs: Tensor | tuple[Tensor], target: Target = None, additional_forward_args: Any = None
    ) -> Tensor | tuple[Tensor]:
        """The attribution (N,C,H,W) of the inputs (N,C,H,W), in a tuple if they are in one."""
        images = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
        check_images(images)
        extra = additional_forward_args
        arguments = extra if isinstance(extra, tuple) else () if extra is None else (extra,)
        one_for_all = isinstance(target, Tensor) and target.numel() == 1
        targets = target_indices(int(target) if one_for_all else target, len(images))  # type: ignore[arg-type]
        found = self._attributed(images, targets, arguments).to(images.device)
        return (found,) if isinstance(inputs, tuple) else found

    @abstractmethod
    def _attributed(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor: ...

    def _gradients(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        with probing(_as_module(self.forward_func, arguments)) as probe:
            if arguments and probe.mixes_samples and len(images) > 1:
                raise InputError(
                    "the model has a batch norm without running statistics, which mixes samples, and gets additional "
                    "arguments: explain one image at a time"
                )
            values = probe.gradients(images, targets).values
        return values.to(at_least_float32(values.dtype))


class AGOPLocal(_OneImageTensor):
    """The gradient (N,C,H,W), with its sign: what `agop-local` and `vanilla` take the absolute value of."""

    def _attributed(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        return self._gradients(images, targets, arguments)


class _WithPrior(_OneImageTensor):
    """An attribution that looks at the model's statistic."""

    def __init__(self, forward_func: Callable[..., Any], prior: AGOP) -> None:
        super().__init__(forward_func)
        if not isinstance(prior, AGOP):
            raise PriorError(f"prior is a {type(prior).__name__}: give an agop.AGOP, for example agop.AGOP.load(path)")
        self.prior = prior

    def _check_prior(self, images: Tensor) -> None:
        if isinstance(self.forward_func, nn.Module):
            self.prior.check(self.forward_func, images)
        else:  # whose weights a function uses cannot be seen
            AGOP(self.prior.diagonal, self.prior.count).check(nn.Identity(), images)


class AGOPWeighted(_WithPrior):
    """The gradient times sqrt(diag(M) / max diag(M)), with its sign: `agop-weighted` before channels are summed."""

    def _attributed(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        self._check_prior(images)
        gradients = self._gradients(images, targets, arguments)
        return gradients * self.prior.weights.to(gradients)


class AGOPGlobal(_WithPrior):
    """diag(M) for every image: `agop-global` before channels are summed. The model is not asked."""

    def _attributed(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        self._check_prior(images)
        diagonal = self.prior.diagonal.to(images.device, at_least_float32(images.dtype))
        return diagonal.expand(len(images), -1, -1, -1).clone()


def _as_module(forward_func: Any, arguments: tuple[Any, ...]) -> nn.Module:
    """What Captum calls a forward function as a model of images alone."""
    if isinstance(forward_func, nn.Module):
        model = unwrapped(forward_func)
        return _Called(model, arguments) if arguments else model
    if not callable(forward_func):
        raise InputError(f"forward_func is a {type(forward_func).__name__}: give a model, or a function of images")
    return _Called(forward_func, arguments)


class _Called(nn.Module):
    """A function with its further arguments. A model among its parts is found, and so held still: the function
    itself, or the one whose method it is. One that a function merely mentions is not.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        self.owner = owner if isinstance(owner, nn.Module) else None
        self.function, self.arguments = function, arguments

    def forward(self, images: Tensor) -> Any:
        return self.function(images, *self.arguments)
