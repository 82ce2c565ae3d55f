"""Speed claims of the patch matrix, the sketch and agop-patch. Alone: `python benchmarks/patch_speed.py FILE.json`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetForImageClassification

import agop
from agop.bench import ResNet18
from measure import Ratio, measure_ratio


def patch_ratios() -> list[Ratio]:
    """Three ratios with their bars."""
    # The sketch compresses its rows once per 64 gradients, from the 128th on.
    photos = torch.randn(128, 3, 224, 224)
    return [
        statistics("ResNet-18, 64 px", ResNet18(2), torch.randn(64, 3, 64, 64), 1.1, 9),
        patch_method(),
        statistics("ResNet-50, 224 px", resnet50(), photos, 1.5, 3, rank=64),
    ]


def statistics(name: str, model: nn.Module, images: Tensor, bar: float, repeats: int, **more: int) -> Ratio:
    """`fit` with the patch matrix, or with what `more` asks for, ÷ `fit` with the diagonal alone."""
    model.eval()

    def fit(**options: int) -> object:
        return agop.fit(model, [images], only_correct=False, progress=False, **options)

    what = f"sketch of rank {more['rank']}" if more else "patch matrix"
    return measure_ratio(
        f"fit, {name}: with {what} ÷ without",
        lambda: fit(patches=not more, **more),
        lambda: fit(patches=False),
        bar,
        at_least=False,
        repeats=repeats,
    )


def patch_method() -> Ratio:
    """agop-patch ÷ one forward pass, per image, of ResNet-50 at 224 px.

    In CPU time of one thread: agop-patch takes so short that other work on the machine can triple its wall time.
    """
    model, images = resnet50(), torch.randn(4, 3, 224, 224)
    prior = agop.fit(model, [images[:1]], only_correct=False, progress=False)

    def forward() -> None:
        with torch.no_grad():
            model(images)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ratio = measure_ratio(
        "agop-patch ÷ one forward pass, ResNet-50 at 224 px",
        lambda: agop.explain(model, images, "agop-patch", prior),
        forward,
        0.25,
        at_least=False,
        repeats=9,
        clock=time.process_time,
    )
    torch.set_num_threads(threads)
    return ratio


def resnet50() -> nn.Module:
    model: nn.Module = ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval()
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    measured = [asdict(ratio) | {"holds": ratio.holds} for ratio in patch_ratios()]
    Path(sys.argv[1]).write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
