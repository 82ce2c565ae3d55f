"""Peak memory of explain(): it follows the batch size, not the number of images or steps."""

import weakref

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode  # torch has no public way to see every allocation on a CPU

import agop
from tests import zoo


class PeakMemory(TorchDispatchMode):
    """Tracks the bytes of all live tensors that operations allocate, in the forward and backward pass."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.storages = 0, 0, weakref.WeakSet()

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(tensor, torch.Tensor):
                self._track(tensor.untyped_storage())
        return output

    def _track(self, storage):
        if storage not in self.storages:
            self.storages.add(storage)
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, size):
        self.live -= size


def peak(count: int, steps: int, batch_size: int) -> int:
    """Peak memory in bytes of explaining `count` images with `steps` steps."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Softplus(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
    )
    images, method = zoo.images(1).expand(count, -1, -1, -1), agop.methods.IntegratedGradients(steps=steps)
    with PeakMemory() as memory:
        maps = agop.explain(model, images, method, batch_size=batch_size)
    return memory.peak - maps.nbytes  # the result itself grows with the images


def test_peak_memory_grows_with_the_batch_size_only():
    little = peak(8, 4, 8)
    assert peak(8, 64, 8) == little
    assert peak(64, 4, 8) == little
    assert peak(64, 4, 64) > 4 * little
