"""Probe: asks a model for logits and gradients, and leaves it exactly as it was.

Shapes: N images (C,H,W), K classes, D channels of a layer's map (h,w).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from agop.errors import AGOPWarning, InputError, ModelError
from agop.model.logits import LogitSource, logits_of
from agop.model.outputs import (
    Forward,
    Output,
    OutputLike,
    Target,
    check_range,
    class_count,
    logit,
    output_for,
    predicted,
    selection,
)
from agop.model.state import Parts, RandomState, SavedBuffers, drawn_by, refuse_sharded, undisturbed, unwrapped

if TYPE_CHECKING:
    from agop.model.layers import PatchLayer

Outputs = dict[nn.Module, Any]
_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_LOCKS_LOCK = Lock()
# Default number of input values per pass, and of images. Larger passes weren't faster on a CPU; with 16,384 images of
# 8×8 pixels per pass, maps took up to 1.8 times as long.
_VALUES_PER_PASS, _IMAGES_PER_PASS = {"cpu": 2**20}, {"cpu": 2**12}
_VALUES_PER_PASS_ELSEWHERE = 2**23
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Gradients:
    """Gradients (N,C,H,W) of the targets' logits, with the logits (N,K) and the targets (N,).

    Of an output without classes, `logits` (N,1) are its numbers and `targets` those of the images. `deltas` (N,D,h,w)
    are gradients with respect to a layer's outputs, if there was a layer.
    """

    values: Tensor
    logits: Tensor
    targets: Tensor
    deltas: Tensor | None = None


def input_gradients(
    model: nn.Module,
    images: Tensor,
    targets: Target = None,
    *,
    output: OutputLike = logit,
    forward: Forward | None = None,
) -> Gradients:
    """Gradients (N,C,H,W) of each image's target logit, or other output, with respect to the image: one backward pass.

    Args:
        model: The model. It is left as it was.
        images: Images (N,C,H,W), or volumes (N,C,D,H,W).
        targets: A class, one class per image, or None for the predicted class.
        output: As in `explain`.
        forward: As in `explain`.

    Returns:
        The gradients as `values`, with `logits` (N,K) and `targets` (N,); of an output without classes, `logits` (N,1)
        are its numbers.

    Raises:
        InputError: Invalid images, targets or output.
        ModelError: The model can't be run or differentiated.

    Example:
        >>> gradients = agop.input_gradients(model, images)
        >>> gradients.values.shape == images.shape
    """
    check_images(images, volumes=True)
    output = output_for(output, forward)
    with probing(model, output) as probe:
        return probe.gradients(images, output.targets(targets, len(images)))


@contextmanager
def probing(model: nn.Module, output: Output = logit) -> Iterator[Probe]:
    """A Probe of the model, which is restored afterwards, also after an error.

    Threads that probe the same model wait for each other. The random state is restored only if a pass of the model
    draws random numbers: other threads may draw meanwhile.
    """
    check_model(model)
    model = unwrapped(model)
    parts = Parts(model)
    refuse_sharded(parts.modules)
    if any(is_lazy(parameter) for parameter in parts.parameters):
        raise ModelError("the model has lazy layers without weights: run one batch through it first")
    if any(parameter.is_inference() for parameter in parts.parameters):
        raise ModelError(
            "the model's parameters were created under torch.inference_mode() and have no gradients: "
            "build or load the model outside of it"
        )
    with _LOCKS_LOCK:
        lock = _LOCKS.setdefault(model, RLock())
    with lock, undisturbed(parts) as buffers, ExitStack() as bypasses:
        probe = Probe(model, parts, LogitSource(parts.modules, bypasses), buffers, output)
        before = RandomState(parts.parameters)
        try:
            yield probe
        finally:
            changed = before.changed()
            if changed:
                before.restore(changed & probe.drawn(parts.parameters))


class Probe:
    """Logits and input gradients of a model in eval mode. Created by `probing`. `output` is what gradients are of.

    For an output without classes, "logits" are its numbers (N,1), and "targets" say which image of the call each is.
    """

    def __init__(
        self, model: nn.Module, parts: Parts, source: LogitSource, buffers: SavedBuffers, output: Output
    ) -> None:
        self.model, self._source, self._buffers, self.output = model, source, buffers, output
        weight = next((p for p in parts.parameters if p.is_floating_point()), None)
        self._place: dict[str, Any] = {} if weight is None else {"device": weight.device, "dtype": weight.dtype}
        # A batch norm without running statistics mixes samples also in eval mode.
        self.mixes_samples = any(isinstance(m, _BATCH_NORMS) and m.running_mean is None for m in parts.modules)
        self._latest: Tensor | None = None

    def logits(self, images: Tensor, targets: Tensor | None = None) -> Tensor:
        """Logits (N,K) without a graph."""
        rows = 1 if self.mixes_samples else len(images)
        with torch.no_grad():
            return torch.cat([self.forward(self.placed(part), own) for part, own in split_batch(rows, images, targets)])

    def predict(self, images: Tensor) -> Tensor:
        """Predicted classes (N,)."""
        return predicted(self.logits(images))

    def gradients(self, images: Tensor, targets: Tensor | None = None, layer: PatchLayer | None = None) -> Gradients:
        """Gradients of each sample's target logit (predicted class if None), in one backward pass.

        With a layer, also those with respect to its outputs, from the same pass.
        """
        if self.mixes_samples and len(images) > 1:
            each = [self.gradients(*part, layer) for part in split_batch(1, images, targets)]
            columns = zip(*((part.values, part.logits, part.targets, part.deltas) for part in each), strict=True)
            return Gradients(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]
        leaf = self.placed(images).requires_grad_()
        nothing: AbstractContextManager[Outputs] = nullcontext({})
        with nothing if layer is None else layer.watched(self.model) as outputs:
            logits = self.forward(leaf, targets)
        targets = self.checked(targets, logits.detach())
        values, deltas = derivative(logits, targets, leaf, next(iter(outputs.values()), None), self.output)
        if layer is not None and deltas is not None:
            deltas = layer.deltas(self.model, deltas, images)
        return Gradients(values, logits.detach(), targets, deltas)

    def gradients_at(self, tensors: Sequence[Tensor], logits: Tensor) -> Sequence[Tensor | None]:
        """Gradients of the predicted logits with respect to tensors: which ones matter at all."""
        return derivatives(logits, predicted(logits), tensors, logit if self.output.has_classes else self.output)

    def forward(self, images: Tensor, targets: Tensor | None = None) -> Tensor:
        """Logits (N,K) of images on the model's device, with a graph if they require gradients."""
        if self.output.has_classes:
            return self._source.logits(images, self._run)
        return self.output.column(self._run(images), targets, len(images))

    def read(self, returned: Any, samples: int, targets: Tensor | None = None) -> Tensor:
        """Logits (N,K) from what a copy of the model returns."""
        if self.output.has_classes:
            return self._source.read(logits_of(returned, samples))
        return self.output.column(returned, targets, samples)

    def _run(self, images: Tensor) -> Any:
        """What the model returns, from the buffers that it had at first.

        The model gets a copy of the images: it may start with an in-place operation, which must not write to a leaf or
        to the caller's images.
        """
        self._buffers.before_pass()
        self._latest = images.detach()
        try:
            forward = self.output.forward
            return self.model(images.clone()) if forward is None else forward(self.model, images.clone())
        except SystemExit as error:
            raise ModelError(f"the model calls sys.exit({error.code!r}) in its forward pass: remove it") from error
        except (RuntimeError, AssertionError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            hint = ""
            if "Guard failed" in str(error):
                hint = "; it was exported for one batch size: use that one, or export it with a dynamic batch"
            raise ModelError(
                f"the model failed on images of shape {tuple(images.shape)}, {images.dtype}: {error}{hint}"
            ) from error

    def drawn(self, parameters: Sequence[Tensor]) -> set[str]:
        """Names of the random generators from which a pass draws: all if it raises, none if there was no pass."""
        images = self._latest
        if images is None:
            return set()
        try:
            return drawn_by(lambda: self._run(images), parameters)
        except Exception:
            return set(RandomState(parameters).names)

    def placed(self, images: Tensor) -> Tensor:
        """The images on the model's device and in its dtype, never as inference tensors."""
        images = images.detach().to(**self._place) if self._place else images.detach()
        return images.clone() if images.is_inference() else images

    def checked(self, targets: Tensor | None, logits: Tensor) -> Tensor:
        """The targets on the logits' device, or the predicted classes if None. Raises if one is out of range."""
        if not self.output.has_classes:
            return torch.arange(len(logits)) if targets is None else targets
        if targets is None:
            return predicted(logits)
        targets = targets.to(logits.device)
        check_range(targets, class_count(logits), "target")
        return targets

    def parts(self, images: Tensor) -> tuple[Tensor, ...]:
        """The images split into batches: one by one if the model mixes samples."""
        return torch.split(images, 1) if self.mixes_samples else (images,)


def split_batch(rows: int, images: Tensor, values: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """Parts with at most `rows` images, and the values (N,) of each part, if there are any."""
    parts = torch.split(images, rows)
    return list(zip(parts, [None] * len(parts) if values is None else torch.split(values, rows), strict=True))


def number_of_classes(model: nn.Module, images: Tensor) -> int:
    """Number of the model's classes, from a pass over images (N,C,H,W), which may be zeros."""
    with probing(model) as probe, warnings.catch_warnings():
        warnings.simplefilter("ignore", AGOPWarning)  # the logits of zeros may look like probabilities
        return class_count(probe.logits(images))


def derivative(
    logits: Tensor, targets: Tensor, inputs: Tensor, outputs: Tensor | None, output: Output = logit
) -> tuple[Tensor, Tensor | None]:
    """Gradient of the summed target logits, or log-odds, with respect to inputs, of the inputs' shape.

    NaN for a sample whose logits aren't finite: a ReLU would pass a finite gradient even then. Logits of −inf, as of
    masked classes, are allowed except for the target. From the same pass, gradients with respect to a layer's outputs
    if there are any: zero if the logits don't depend on the layer.
    """
    values, *at_layer = derivatives(logits, targets, [inputs] if outputs is None else [inputs, outputs], output)
    if values is None:
        raise ModelError(
            f"{_called(output)} does not depend on its input: explain one that is computed from the images"
        )
    values = finite_or_nan(values.detach(), logits.detach(), targets)
    if outputs is None:
        return values, None
    return values, torch.zeros_like(outputs) if at_layer[0] is None else at_layer[0].detach()


def finite_or_nan(values: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
    """The gradients (N,…), NaN for a sample whose logits aren't finite."""
    if bool(logits.isfinite().all()):
        return values
    own = logits if logits.shape[1] == 1 else logits.gather(1, targets[:, None])
    valid = own[:, 0].isfinite() & (logits < torch.inf).all(dim=1)
    return values.index_fill(0, (~valid).nonzero()[:, 0], torch.nan)


def derivatives(
    logits: Tensor, targets: Tensor, tensors: Sequence[Tensor], output: Output = logit
) -> Sequence[Tensor | None]:
    """Gradients of the summed target logits with respect to several tensors. None for a tensor they don't depend on."""
    if not logits.requires_grad:
        raise ModelError(
            f"{_called(output)} does not depend on its input through differentiable operations: "
            "look for detach(), no_grad(), argmax() or rounding"
        )
    try:
        return torch.autograd.grad(logits, tensors, selection(logits.detach(), targets, output), allow_unused=True)
    except RuntimeError as error:
        if "use_reentrant" not in str(error):
            raise
        raise ModelError(
            "the model uses reentrant checkpointing, which gives no gradients with respect to images: pass "
            "use_reentrant=False to torch.utils.checkpoint, in transformers "
            "gradient_checkpointing_kwargs={'use_reentrant': False}"
        ) from error


def _called(output: Output) -> str:
    return "the model's output" if output.label == "logit" else f"the output {output.name} of the model"


@contextmanager
def captured(layers: Iterable[nn.Module], keep: Callable[[Any], bool] = lambda output: True) -> Iterator[Outputs]:
    """Output of each layer's last call, in order of execution, where `keep` is true; the first item of a tuple.

    The model continues with copies, so that an in-place activation after a layer can't overwrite the captured output.
    """
    outputs: Outputs = {}

    def capture(module: nn.Module, _: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) and output else output
        outputs.pop(module, None)
        if not keep(first):
            return None
        outputs[module] = first
        if isinstance(output, Tensor):
            return output.clone()
        if type(output) is tuple and isinstance(first, Tensor):
            return (first.clone(), *output[1:])
        return None

    handles = [layer.register_forward_hook(capture) for layer in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def check_model(model: Any) -> None:
    """Raise unless the model is a torch.nn.Module."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}: give a torch.nn.Module")


def check_images(images: Any, *, volumes: bool = False) -> None:
    """Raise unless images are a non-empty floating-point batch (N,C,H,W), or if allowed volumes (N,C,D,H,W)."""
    if not isinstance(images, Tensor):
        raise InputError(f"images are a {type(images).__name__}: give a torch tensor (N,C,H,W)")
    if images.ndim != 4 and not (volumes and images.ndim == 5):
        hint = " (for one image, images[None])" if images.ndim == 3 else ", or volumes (N,C,D,H,W)" if volumes else ""
        raise InputError(f"images have shape {tuple(images.shape)}: give (N,C,H,W){hint}")
    if not images.is_floating_point():
        raise InputError(
            f"images are {images.dtype}: convert and scale them as in training, for example images.float() / 255"
        )
    if images.numel() == 0:
        raise InputError(f"images have shape {tuple(images.shape)}: give at least one image")


def rows_for(images: Tensor, batch_size: int | None, model: nn.Module | None) -> int:
    """Number of images per forward pass: batch_size, or by default a number that suits their size and the device."""
    if batch_size is None:
        parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        device = images.device if parameter is None else parameter.device
        values = _VALUES_PER_PASS.get(device.type, _VALUES_PER_PASS_ELSEWHERE)
        rows = max(1, values // images[0].numel())
        return min(rows, _IMAGES_PER_PASS.get(device.type, rows))
    if not isinstance(batch_size, int) or batch_size < 1:
        raise InputError(f"batch_size is {batch_size}: give a positive integer or None")
    return batch_size


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype of maps: this one, or float32 if this is smaller."""
    return torch.promote_types(dtype, torch.float32)


def float64_device(device: torch.device) -> torch.device:
    """The device, or the CPU for a device that may lack float64, such as Apple's GPUs."""
    return device if device.type in ("cpu", "cuda") else torch.device("cpu")
