"""CNN8by8: the paper's network for XAI-TRIS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class CNN8by8(nn.Module):
    """Four blocks of convolution, ReLU and pooling, then a linear layer: 234 parameters, logits (N,2).

    The convolutions' maps are 9×9, 5×5, 3×3 and 2×2; the paper's GradCAM uses the third, `conv3`.
    """

    # The layer of the patch matrix, and the shape of `outputs` below: channels, and positions that the pooling uses.
    patch_layer = "conv1"
    patch_outputs = (4, 64)

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=2, padding=1)
        self.conv2 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.conv3 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.conv4 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = self.pool(conv(x).relu())
        logits: Tensor = self.fc(x.flatten(1))
        return logits

    @staticmethod
    def stacked_forward(weights: Mapping[str, Tensor], images: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Logits (S,N,2) of S networks with stacked weights (S,…), each on its own images (S,N,1,8,8).

        The gradient with respect to `outputs` (S,4,64,N), whose values don't matter, is that with respect to the first
        convolution's outputs, at the positions that the pooling uses.
        """
        x = images.permute(0, 2, 3, 4, 1)
        for name in ("conv1", "conv2", "conv3", "conv4"):
            parts = (x, weights[f"{name}.weight"], weights[f"{name}.bias"], outputs if name == "conv1" else None)
            x = _Block.apply(*parts)  # type: ignore[no-untyped-call]
        logits = torch.baddbmm(weights["fc.bias"][:, :, None], weights["fc.weight"], x.flatten(1, 3))
        return logits.transpose(1, 2)


class _Block(torch.autograd.Function):
    """Convolution of kernel 2 and padding 1, ReLU and pooling, of S networks: (S,C,H,W,N) → (S,D,⌊(H+1)/2⌋,…,N).

    One batched matrix product, with the samples last in memory, so that every step runs over long rows: several times
    faster per network than the library's convolution and pooling at this size.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, outputs: Tensor | None) -> Tensor:
        """Maps (S,D,h,w,N) with weights (S,D,C,2,2) and biases (S,D). `outputs` gets the convolution's gradient."""
        networks, channels, height, width, samples = x.shape
        padded = functional.pad(x, (0, 0, 1, 1, 1, 1))
        patches = torch.stack([padded[part] for part in _parts(height, width)], dim=2).reshape(
            networks, channels * 4, -1
        )
        size = ((height + 1) // 2, (width + 1) // 2)
        values = torch.baddbmm(bias[:, :, None], weight.flatten(2), patches)
        a, b, c, d = values.reshape(networks, -1, 4, *size, samples).unbind(2)
        upper, lower = torch.maximum(a, b), torch.maximum(c, d)
        maps = torch.maximum(upper, lower).relu_()
        if any(ctx.needs_input_grad):
            # The first of equal values gets the gradient, as in max_pool2d.
            above, below = (upper >= lower) & (maps > 0), (upper < lower) & (maps > 0)
            chosen = torch.stack([above & (a >= b), above & (a < b), below & (c >= d), below & (c < d)], dim=2)
            ctx.save_for_backward(patches, weight, chosen)
            ctx.size = height, width
        return maps

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs, the weights, the biases and the convolution's outputs."""
        patches, weight, chosen = ctx.saved_tensors
        outputs = (gradients[0][:, :, None] * chosen).flatten(2)
        inputs = weights = biases = None
        by_sample = outputs.unflatten(2, (-1, chosen.shape[-1])) if ctx.needs_input_grad[3] else None
        if ctx.needs_input_grad[0]:
            inputs = _folded(weight.flatten(2).transpose(1, 2) @ outputs, chosen.shape[-1], *ctx.size)
        if ctx.needs_input_grad[1]:
            weights, biases = (outputs @ patches.transpose(1, 2)).reshape(weight.shape), outputs.sum(2)
        return inputs, weights, biases, by_sample


def _parts(height: int, width: int) -> list[tuple[Any, ...]]:
    """Slices of a padded input (S,C,H+2,W+2,N), by offset in the kernel, then by place in the pooling window."""
    high, wide = (height + 1) // 2 * 2, (width + 1) // 2 * 2
    return [
        (slice(None), slice(None), slice(i + a, i + a + high, 2), slice(j + b, j + b + wide, 2))
        for i in (0, 1) for j in (0, 1) for a in (0, 1) for b in (0, 1)
    ]  # fmt: skip


def _folded(patches: Tensor, samples: int, height: int, width: int) -> Tensor:
    """Sum (S,C,H,W,N) of the gradients of all patches (S,C·4,…) that contain an input."""
    networks, size = len(patches), ((height + 1) // 2, (width + 1) // 2)
    parts = patches.reshape(networks, -1, 16, *size, samples)
    padded = parts.new_zeros(networks, parts.shape[1], height + 2, width + 2, samples)
    for place, part in enumerate(_parts(height, width)):
        padded[part] += parts[:, :, place]
    return padded[:, :, 1:-1, 1:-1]
