"""every="auto" of the training hook: how much slower a training is, and how close diag(M) is to that of every batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

import agop
from agop.networks import CNN8by8, ResNet18
from agop.scenarios import xai_tris
from agop.scenarios.clevr_xai import clevr_xai

SLOWER, COSINE = 1.15, 0.99
REPEATS = 3


@dataclass(frozen=True)
class Paced:
    """A training with every="auto": processor time over that without the hook, the cosine of diag(M), and the hook's own
    estimate of it.
    """

    network: str
    steps: int
    passes: int
    slower: float
    cosine: float
    estimated_cosine: float

    @property
    def holds(self) -> bool:
        """True if both bars are reached."""
        return self.slower <= SLOWER and self.cosine >= COSINE


class SmallViT(nn.Module):
    """A transformer of two blocks on patches of 2×2 pixels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.places = nn.Parameter(torch.zeros(16, width))
        block = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.blocks, self.head = nn.TransformerEncoder(block, 2, enable_nested_tensor=False), nn.Linear(width, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N,2) of images (N,1,8,8)."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(tokens).mean(dim=1))


def paced(
    network: str, build: Callable[[], nn.Module], images: Tensor, labels: Tensor, batch: int, steps: int, rate: float
) -> Paced:
    """Train from the same weights: no hook and every="auto" in turn, the shortest of each, and every=1.

    With one thread: threads that wait for each other count as processor time.
    """

    def train(every: int | str | None) -> tuple[float, Any]:
        torch.manual_seed(0)
        model = build().train()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        hook = None if every is None else agop.AGOPTrainingHook(model, only_correct=False, every=every)
        start = time.process_time()
        for _ in range(steps):
            rows = torch.randint(len(images), (batch,))
            optimizer.zero_grad()
            cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
            if hook is not None:
                hook.step(images[rows], labels[rows])
        return time.process_time() - start, hook

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pairs = [(train(None)[0], train("auto")) for _ in range(REPEATS)]
    _, all_batches = train(1)
    torch.set_num_threads(threads)
    plain, (seconds, auto) = min(pair[0] for pair in pairs), min((pair[1] for pair in pairs), key=itemgetter(0))
    cosine = cosine_similarity(auto.diagonal.flatten(), all_batches.diagonal.flatten(), dim=0)
    result = Paced(network, steps, auto.count // batch, seconds / plain, float(cosine), auto.convergence)
    print(
        f"{result.slower:8.3g}  cosine {result.cosine:.4f}, estimated {result.estimated_cosine:.4f}  {result.passes} passes in {steps} steps, {network}",
        flush=True,
    )
    return result


def auto_paces() -> list[Paced]:
    small, _, _ = xai_tris("linear")
    scenes, _, _ = clevr_xai(samples=400).splits("drawn", 0)
    return [
        paced("CNN8by8", CNN8by8, small.images, small.labels, 64, 1500, 3e-3),
        paced("small ViT, 8×8", SmallViT, small.images, small.labels, 64, 1000, 1e-3),
        paced("ResNet-18, CLEVR at 64 px", lambda: ResNet18(2), scenes.images, scenes.labels, 16, 200, 1e-3),
    ]


if __name__ == "__main__":
    auto_paces()
