"""Layers: which one a method uses, its feature maps and gradients, and the outputs at its patches."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agop.errors import LayerError, warn
from agop.model.outputs import Output
from agop.model.probe import (
    Outputs,
    Probe,
    at_least_float32,
    captured,
    derivatives,
    finite_or_nan,
    probing,
    split_batch,
)
from agop.model.state import unwrapped

CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_MOST_PREFIX_TOKENS = 16
# Attribute of a convolution with a folded batch norm, which `prepare` makes: the norm's factors (D,).
FOLDED_SCALE = "_agop_folded"


def as_grid(
    features: Tensor, samples: int, size: torch.Size, prefix: int | None = None, *, channels_first: bool = False
) -> Tensor:
    """Feature maps (N,D,h,w) from maps (N,D,h,w) or, unless channels_first, (N,h,w,D), or from tokens (N,T,D)."""
    if features.ndim not in (3, 4) or len(features) != samples:
        shape = tuple(features.shape)
        raise LayerError(f"the layer returns {shape} for {samples} images, neither maps nor tokens: give another layer")
    if features.ndim == 4:
        return features if channels_first or not _channels_last(features, size) else features.permute(0, 3, 1, 2)
    rows, columns = token_grid(features.shape[1], size, prefix)
    patches = features[:, features.shape[1] - rows * columns :]
    return patches.transpose(1, 2).reshape(samples, -1, rows, columns)


def token_grid(tokens: int, size: torch.Size, prefix: int | None = None) -> tuple[int, int]:
    """Rows and columns of the patches of an image (H,W).

    They follow `prefix` class and register tokens if the rest forms a grid, else as few such tokens as possible.
    """
    first = [tokens - prefix] if prefix is not None else []
    for patches in (*first, *range(tokens, max(0, tokens - _MOST_PREFIX_TOKENS - 1), -1)):
        rows = round(math.sqrt(max(0, patches) * size[0] / size[1]))
        if rows > 0 and patches % rows == 0 and rows * size[1] == patches // rows * size[0]:
            return rows, patches // rows
    raise LayerError(f"{tokens} tokens do not form a grid over {size[0]}×{size[1]} pixels: give another layer")


def prefix_tokens(model: nn.Module) -> int | None:
    """Number of class and register tokens before the patches, if the model has an attribute for it."""
    registers = getattr(getattr(model, "config", None), "num_register_tokens", None)
    if isinstance(registers, int):  # transformers counts the class token separately
        return registers + 1
    for module in model.modules():
        if hasattr(module, "num_prefix_tokens"):  # timm
            return module.num_prefix_tokens if isinstance(module.num_prefix_tokens, int) else None
    return None


def _channels_last(maps: Tensor, size: torch.Size) -> bool:
    """True if the first two of a map's three sides match the image's aspect ratio better than the last two."""
    first, second, third = maps.shape[1:]
    ratio = math.log(size[0] / size[1])
    return abs(math.log(first / second) - ratio) < abs(math.log(second / third) - ratio)


def default_layer(probe: Probe, image: Tensor) -> nn.Module:
    """The block of the last convolution with a map, or in a transformer the last norm whose patches have a gradient."""
    last, output = last_layer(probe, image)
    return _block(probe, image, last, output.shape) if isinstance(last, CONVOLUTIONS) else last


def last_layer(probe: Probe, image: Tensor) -> tuple[nn.Module, Tensor]:
    """The last convolution with a map, or in a transformer the last norm whose patches have a gradient; its output."""
    norms = ("LayerNorm", "RMSNorm")
    layers = [
        module
        for module in probe.model.modules()
        if isinstance(module, CONVOLUTIONS) or any(norm in type(module).__name__ for norm in norms)
    ]
    with captured(layers) as outputs:
        logits = probe.forward(probe.placed(image).requires_grad_())
    size, prefix = image.shape[-2:], prefix_tokens(probe.model)
    candidates = [(m, out) for m, out in outputs.items() if isinstance(out, Tensor) and _has_map(m, out, size)]
    gradients = probe.gradients_at([out for _, out in candidates], logits) if candidates else ()
    # After the last attention only the class token reaches the logits: the norm there has no patch gradients.
    useful = [
        m for (m, _), g in zip(candidates, gradients, strict=True)
        if g is not None and (g.ndim == 4 or bool((as_grid(g, 1, size, prefix) != 0).any()))
    ]  # fmt: skip
    if not useful:
        raise LayerError(
            "the model has no convolution with a map larger than 1×1, and no tokens, that its output depends on: "
            "name a layer with a spatial output, or use a gradient method (an exported model has no layers)"
        )
    # A single norm of maps after a convolution, as in ConvNeXt, belongs to it. Several mean: no convolutions.
    maps = [isinstance(m, CONVOLUTIONS) or outputs[m].ndim == 3 for m in reversed(useful)]
    last = useful[-2] if maps[:2] == [False, True] else useful[-1]
    return last, outputs[last]


def _block(probe: Probe, image: Tensor, convolution: nn.Module, shape: torch.Size) -> nn.Module:
    """The last module, in order of execution, whose map is of the convolution's size, from the convolution on.

    This is its norm, its activation, or the block that adds the shortcut. A pooled map would be coarser.
    """
    # A scripted module takes no hooks.
    inside = [m for m in probe.model.modules() if m is not probe.model and not isinstance(m, torch.jit.ScriptModule)]
    same_size = (len(image), *shape[2:])
    with captured(inside, lambda out: _are_maps(out) and (len(out), *out.shape[2:]) == same_size) as outputs:
        logits = probe.forward(probe.placed(image).requires_grad_())
    modules = list(outputs)
    candidates = modules[modules.index(convolution) :]
    gradients = probe.gradients_at([outputs[m] for m in candidates], logits)
    useful = [
        m for m, g in zip(candidates, gradients, strict=True)
        if m is convolution or (g is not None and as_grid(g, 1, image.shape[-2:]) is g)
    ]  # fmt: skip
    return useful[-1]


def _are_maps(output: Any) -> bool:
    """True for maps (N,D,h,w) that depend on the image."""
    return isinstance(output, Tensor) and output.requires_grad and output.ndim == 4


def _has_map(module: nn.Module, output: Tensor, size: torch.Size) -> bool:
    """True for an output with a spatial grid that depends on the image: a map, or tokens of a norm."""
    if not output.requires_grad or len(output) != 1:
        return False
    if isinstance(module, CONVOLUTIONS):
        return output.ndim == 4 and output.shape[-2] * output.shape[-1] > 1
    if output.ndim == 4:
        rows, columns = as_grid(output, 1, size).shape[-2:]
        return rows * columns > 1 and rows * size[1] == columns * size[0]
    try:
        return output.ndim == 3 and math.prod(token_grid(output.shape[1], size)) > 1
    except LayerError:
        return False


Layer = str | nn.Module | None
# A map with fewer rows or columns is coarse.
COARSE_BELOW = 7
# A layer whose gradients show an object has at least this many rows and columns, each of at least this many pixels.
FINE, FINE_STRIDE = 14, 8


class FeatureMaps(NamedTuple):
    """A layer's activations and the gradients of the target logits with respect to them, both (N,D,h,w)."""

    activations: Tensor
    gradients: Tensor


def layer_name(model: nn.Module, image: Tensor) -> str:
    """Name of GradCAM's default layer for one image (1,C,H,W)."""
    with probing(model) as probe:
        return named_layer(probe.model, default_layer(probe, image))[0]


def named_layer(model: nn.Module, layer: str | nn.Module) -> tuple[str, nn.Module]:
    """Name and module of a layer. Raises LayerError, which lists candidates, if the model has no such layer."""
    if isinstance(model, torch.jit.ScriptModule):
        raise LayerError("layers of a TorchScript model can't be read: pass the model as it was before torch.jit")
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if isinstance(layer, str):
        if layer not in modules or not layer:
            raise LayerError(f"the model has no layer {layer!r}: {layer_candidates(model, layer)}")
        return layer, modules[layer]
    name = next((name for name, module in modules.items() if module is layer), None)
    if name is None:
        raise LayerError(f"the layer {type(layer).__name__} is not part of the model: {layer_candidates(model)}")
    return name, layer


def layer_for(probe: Probe, image: Tensor, layer: Layer) -> nn.Module:
    """The layer's module, or the default. Warns if the map is coarse."""
    name, module = named_layer(probe.model, default_layer(probe, image) if layer is None else layer)
    if hasattr(module, FOLDED_SCALE):
        warn(
            f"layer {name!r} of this prepared model returns the output of its batch norm: for that of the convolution, "
            f"use prepare(model, keep=[{name!r}])"
        )
    rows, columns = map_size(probe, image, module)
    if min(rows, columns) < COARSE_BELOW:
        warn(
            f"the map of layer {name!r} is only {rows}×{columns} for {image.shape[-2]}×{image.shape[-1]} images: "
            "GradCAM can't localise finer than that; name an earlier layer"
        )
    return module


def feature_maps(probe: Probe, images: Tensor, targets: Tensor | None, layer: Layer) -> FeatureMaps:
    """Activations and gradients at the layer's last call, for each image's target (predicted class if None)."""
    if not isinstance(layer, nn.Module):
        layer = layer_for(probe, images[:1], layer)
    return feature_maps_of(probe, images, targets, [layer], probe.output)[0]


def feature_maps_of(
    probe: Probe, images: Tensor, targets: Tensor | None, layers: Sequence[nn.Module], output: Output
) -> list[FeatureMaps]:
    """Activations and gradients at several layers, from one forward and one backward pass."""
    if probe.mixes_samples and len(images) > 1:
        parts = [feature_maps_of(probe, *part, layers, output) for part in split_batch(1, images, targets)]
        return [FeatureMaps(*map(torch.cat, zip(*of_layer, strict=True))) for of_layer in zip(*parts, strict=True)]
    with captured(layers) as outputs:
        logits = probe.forward(probe.placed(images).requires_grad_(), targets)
    activations = [tensor_of(layer, outputs) for layer in layers]
    targets = probe.checked(targets, logits.detach())
    gradients = derivatives(logits, targets, activations, output)
    maps = []
    for layer, values, gradient in zip(layers, activations, gradients, strict=True):
        if gradient is None:
            raise LayerError(f"the model's output doesn't depend on the layer {type(layer).__name__}: give another one")
        both = (values.detach(), finite_or_nan(gradient.detach(), logits.detach(), targets))
        grids = [feature_grid(probe.model, layer, part, images) for part in both]
        maps.append(FeatureMaps(*(grid.to(at_least_float32(grid.dtype)) for grid in grids)))
    return maps


def fine_layer(probe: Probe, image: Tensor) -> nn.Module | None:
    """A block with a map of at least 14×14, at a stride of at least 8, for one image (1,C,H,W); None without.

    Of the blocks with the smallest such map, it is the one before the block that contains the last convolution of that
    size with a kernel above 1×1: a layer with a stride behind the last block would leave a grid in its gradients, as in
    a ResNet. Blocks are modules of one class in one parent, the outermost if there are several; without any, it is the
    outermost module before that convolution.
    """
    if isinstance(probe.model, torch.jit.ScriptModule):
        return None
    names = {module: name for name, module in probe.model.named_modules() if name}
    sides = image.shape[2:]

    def is_fine(out: Any) -> bool:
        pairs = zip(out.shape[2:], sides, strict=True) if _are_maps(out) else ((0, 0),)
        return all(side >= FINE and FINE_STRIDE * side <= pixels for side, pixels in pairs)

    inside = [module for module in names if not isinstance(module, torch.jit.ScriptModule)]
    with captured(inside, is_fine) as outputs:
        logits = probe.forward(probe.placed(image).requires_grad_())
    gradients = probe.gradients_at(list(outputs.values()), logits) if outputs else ()
    useful = [module for module, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
    if not useful:
        return None
    smallest = min(outputs[module].shape[2:].numel() for module in useful)
    last = [module for module in useful if outputs[module].shape[2:].numel() == smallest]
    spread = [m for m in last if isinstance(m, nn.Conv2d) and max(m.kernel_size) > 1 and max(m.stride) == 1]
    before = last[: last.index(spread[-1])] if spread else last
    parts, modules = names[spread[-1]].split(".") if spread else [], dict(probe.model.named_modules())
    for place, _ in enumerate(parts):  # the block that contains this convolution, from the outside
        block, parent = type(modules[".".join(parts[: place + 1])]), ".".join(parts[:place])
        alike = [m for m in before if type(m) is block and names[m].rpartition(".")[0] == parent]
        if alike:
            return alike[-1]
    depth = min(names[module].count(".") for module in before or last)
    return [module for module in before or last if names[module].count(".") == depth][-1]


def output_of(probe: Probe, image: Tensor, layer: nn.Module) -> Tensor:
    """Output of the layer's last call for one image (1,C,H,W), in its own shape."""
    with torch.no_grad(), captured([layer]) as outputs:
        probe.forward(probe.placed(image))
    return tensor_of(layer, outputs)


def map_size(probe: Probe, image: Tensor, layer: nn.Module) -> tuple[int, int]:
    """Rows and columns of the layer's map for one image (1,C,H,W)."""
    rows, columns = feature_grid(probe.model, layer, output_of(probe, image, layer), image).shape[2:]
    return rows, columns


def tensor_of(layer: nn.Module, outputs: Outputs) -> Tensor:
    """The layer's output as a tensor. Raises LayerError if it wasn't called or returned something else."""
    if layer not in outputs:
        raise LayerError(f"the layer {type(layer).__name__} wasn't called in the forward pass: give another one")
    if not isinstance(outputs[layer], Tensor):
        kind = type(outputs[layer]).__name__
        raise LayerError(f"the layer {type(layer).__name__} returns a {kind}, not a map: give a layer inside it")
    return outputs[layer]  # type: ignore[no-any-return]


def layer_candidates(model: nn.Module, near: str = "") -> str:
    """Names of layers for an error message: convolutions if there are any, and the name most like `near`."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    names = [name for name, module in modules.items() if isinstance(module, CONVOLUTIONS)]
    names = names or [name for name in modules if name]
    close = get_close_matches(near, [name for name in modules if name], n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    ellipsis = "… " if len(names) > 12 else ""
    return f"{hint}candidates: {ellipsis}{', '.join(names[-12:])}"


class PatchLayer:
    """A layer by name or as a module of the model, or by default the first convolution that the model calls.

    `name` is None until the first forward pass has called a convolution. If a layer is called several times, the last
    call counts.
    """

    def __init__(self, model: nn.Module, layer: Layer = None) -> None:
        self.name = None if layer is None else named_layer(unwrapped(model), layer)[0]

    @contextmanager
    def watched(self, model: nn.Module) -> Iterator[Outputs]:
        """The layer's output in the last forward pass of the block. Empty if the model has no convolution."""
        if self.name is None:
            layers = (module for module in model.modules() if isinstance(module, nn.Conv2d))
            # The first one whose maps are larger than 1×1.
            with captured(layers, lambda out: not outputs and _are_maps(out) and out.shape[2:].numel() > 1) as outputs:
                yield outputs
            self.name = next((name for name, module in model.named_modules() if module in outputs), None)
        else:
            layer = model.get_submodule(self.name)
            with captured([layer]) as outputs:
                yield outputs
            if not tensor_of(layer, outputs).requires_grad:
                raise LayerError(f"the output of layer {self.name!r} doesn't depend on the images: give another layer")

    def deltas(self, model: nn.Module, gradients: Tensor, images: Tensor) -> Tensor:
        """Gradients (N,D,h,w) with respect to W·patch, from those with respect to the layer's output."""
        layer = model.get_submodule(self.name or "")
        scale: Tensor | None = getattr(layer, FOLDED_SCALE, None)
        grid = feature_grid(model, layer, gradients, images)
        return grid if scale is None else grid * scale.to(grid)[:, None, None]


def first_convolution(probe: Probe, image: Tensor) -> nn.Module | None:
    """The patch matrix's default layer for one image (1,C,H,W); None if the model has no convolution."""
    layer = PatchLayer(probe.model)
    with layer.watched(probe.model):
        probe.forward(probe.placed(image).requires_grad_())
    return None if layer.name is None else probe.model.get_submodule(layer.name)


def feature_grid(model: nn.Module, layer: nn.Module, features: Tensor, images: Tensor) -> Tensor:
    """A layer's output, or gradients of its shape, as maps (N,D,h,w), without class and register tokens."""
    prefix = prefix_tokens(model) if features.ndim == 3 else None
    return as_grid(features, len(images), images.shape[-2:], prefix, channels_first=isinstance(layer, CONVOLUTIONS))


def patch_outputs(probe: Probe, images: Tensor, layer: nn.Module) -> tuple[Tensor, torch.Size]:
    """W·patch (N,D,h,w) of a convolution or linear layer, without bias; the output of another layer. Its input's shape.

    The model runs only up to the layer's first call.
    """
    calls = [_first_call(probe, part, layer) for part in probe.parts(images)]
    features = torch.cat([feature_grid(probe.model, layer, output, images[: len(output)]) for _, output in calls])
    features = features.to(at_least_float32(features.dtype))
    bias = layer.bias if isinstance(layer, (nn.Conv2d, nn.Linear)) else None
    if bias is not None:
        features = features - bias.detach().to(features)[:, None, None]
    inverse = _inverse_scale(layer)  # before a batch norm that was folded into the layer
    return features if inverse is None else features * inverse.to(features)[:, None, None], calls[0][0]


class _Reached(BaseException):  # not an Exception: a model's forward pass may catch those
    pass


def _first_call(probe: Probe, images: Tensor, layer: nn.Module) -> tuple[torch.Size, Tensor]:
    """Shape of the layer's input, and its output."""
    shape, outputs = torch.Size(), {}

    def stop(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal shape
        shape = next((value.shape for value in inputs if isinstance(value, Tensor)), shape)
        outputs[module] = output[0] if isinstance(output, tuple) and output else output
        raise _Reached

    handle = layer.register_forward_hook(stop)
    try:
        # With gradients, as when S was collected: without, torch's transformer layers don't call their parts.
        probe.forward(probe.placed(images).requires_grad_())
    except _Reached:
        pass
    finally:
        handle.remove()
    return shape, tensor_of(layer, outputs).detach()


def _inverse_scale(layer: nn.Module) -> Tensor | None:
    """Factors (D,) that undo a folded batch norm, 0 for a channel that it switches off: S is 0 there."""
    scale: Tensor | None = getattr(layer, FOLDED_SCALE, None)
    return None if scale is None else torch.where(scale == 0, 0.0, 1 / scale)


def convolution_weight(layer: nn.Conv2d) -> Tensor:
    """Weights (D,C,kh,kw) in float64, before a batch norm that was folded into them, with zeros between groups."""
    weight, inverse = layer.weight.detach().cpu().double(), _inverse_scale(layer)
    if inverse is not None:
        weight = weight * inverse.to(weight)[:, None, None, None]
    own = weight.new_ones(layer.out_channels // layer.groups, layer.in_channels // layer.groups)
    in_group = torch.kron(torch.eye(layer.groups).to(own), own).bool()
    return torch.where(in_group[:, :, None, None], weight.repeat(1, layer.groups, 1, 1), 0.0)
