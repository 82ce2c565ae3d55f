"""every="auto" of the training hook: how much slower a training is, and how close diag(M) is to that of every batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

import agop
from agop.bench import CNN8by8, ResNet18
from agop.bench.scenarios import xai_tris
from agop.bench.scenarios.clevr_xai import clevr_xai
from agop.collect.hook import Pace

SLOWER, COSINE = 1.15, 0.99


@dataclass(frozen=True)
class Paced:
    """A training with every="auto": processor time over that without the hook, cosine of diag(M) and its estimate."""

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


class Training:
    """A training that counts its own processor time only, also for the hook: two of them run in turn, step by step."""

    def __init__(self, build: Callable[[], nn.Module], rate: float, hooked: bool) -> None:
        torch.manual_seed(0)
        self.model = build().train()
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=rate)
        self.hook = agop.AGOPTrainingHook(self.model, only_correct=False, every="auto") if hooked else None
        self.seconds, self._start = 0.0, 0.0
        if self.hook is not None:
            self.hook._pace = Pace("auto", lambda: self.seconds + time.process_time() - self._start)

    def step(self, images: Tensor, labels: Tensor) -> None:
        """One step of the optimizer, then of the hook."""
        self._start = time.process_time()
        self._optimizer.zero_grad()
        cross_entropy(self.model(images), labels).backward()
        self._optimizer.step()
        if self.hook is not None:
            self.hook.step(images, labels)
        self.seconds += time.process_time() - self._start


def paced(
    network: str, build: Callable[[], nn.Module], images: Tensor, labels: Tensor, batch: int, steps: int, rate: float
) -> Paced:
    """Train twice from the same weights on the same batches, without a hook and with every="auto", in turn.

    A machine's speed may change by a third within minutes. One thread: threads that wait for each other count as
    processor time.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    plain, auto = Training(build, rate, hooked=False), Training(build, rate, hooked=True)
    all_batches = agop.AGOPTrainingHook(plain.model, only_correct=False)  # the hook doesn't change a training
    for _ in range(steps):
        rows = torch.randint(len(images), (batch,))
        for training in (plain, auto):
            training.step(images[rows], labels[rows])
        all_batches.step(images[rows], labels[rows])
    torch.set_num_threads(threads)
    cosine = cosine_similarity(auto.hook.diagonal.flatten(), all_batches.diagonal.flatten(), dim=0)
    slower, passes = auto.seconds / plain.seconds, auto.hook.count // batch
    result = Paced(network, steps, passes, slower, float(cosine), auto.hook.convergence)
    cosines = f"cosine {result.cosine:.4f}, estimated {result.estimated_cosine:.4f}"
    print(f"{result.slower:8.3g}  {cosines}  {result.passes} passes in {steps} steps, {network}", flush=True)
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
