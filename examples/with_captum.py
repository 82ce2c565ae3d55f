"""Captum in both directions: AGOP-Weighted as a Captum attribution, and Captum's attributions in agop's evaluation.

AGOP-Weighted needs a prior, which one pass over the training data computes.
"""

from __future__ import annotations

import torch
from captum.attr import NoiseTunnel, Saliency
from captum.metrics import sensitivity_max
from torch import Tensor, nn

import agop
from agop.bench.networks import CNN8by8
from agop.bench.scenarios import Split, xai_tris
from agop.integrations.captum import AGOPWeighted, Captum


def train(data: Split) -> nn.Module:
    torch.manual_seed(0)
    model = CNN8by8()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for rows in torch.randperm(len(data)).repeat(5).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.images[rows]), data.labels[rows]).backward()
        optimizer.step()
    return model.eval()


def share_on_shape(attribution: Tensor, masks: Tensor) -> str:
    """Mean share of an attribution (N,C,H,W) on the shape."""
    return f"{float(agop.metrics.energy(attribution.detach().abs().sum(1), masks).nanmean()):.2f} on the shape"


def main() -> None:
    training, _, test = xai_tris("linear")
    test = test.first(200)
    model = train(training)
    prior = agop.fit(model, zip(training.images.split(500), training.labels.split(500), strict=True), progress=False)

    # agop in Captum: works wherever Captum takes an attribution.
    inputs, target = test.images.clone().requires_grad_(), model(test.images).argmax(1)
    saliency, weighted = Saliency(model), AGOPWeighted(model, prior)
    print("Saliency              ", share_on_shape(saliency.attribute(inputs, target=target), test.masks))
    print("AGOPWeighted          ", share_on_shape(weighted.attribute(inputs, target=target), test.masks))
    smoothed = NoiseTunnel(weighted).attribute(inputs, nt_samples=20, stdevs=0.15, target=target)
    print("AGOPWeighted, smoothed", share_on_shape(smoothed, test.masks))
    sensitivity = sensitivity_max(weighted.attribute, test.images[:20], target=target[:20])
    print(f"AGOPWeighted, sensitivity (captum.metrics) {float(sensitivity.mean()):.2f}\n")

    # Captum in agop: by name, or configured.
    methods = ["agop-weighted", "captum:InputXGradient", Captum("Occlusion", sliding_window_shapes=(1, 3, 3))]
    print(
        agop.evaluate(model, test.images, test.masks, methods, prior, metrics=["energy", "pointing_game", "deletion"])
    )


if __name__ == "__main__":
    main()
