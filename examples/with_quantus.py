"""Quantus with agop's methods: its metrics take `as_quantus("agop-weighted", prior)` as explain_func.

Prints Quantus' scores beside agop's for metrics that both define.
"""

from __future__ import annotations

import numpy as np
import quantus
import torch
from torch import nn

import agop
from agop.bench.networks import CNN8by8
from agop.bench.scenarios import xai_tris
from agop.integrations.quantus import as_quantus

METRICS = {
    "pointing_game": quantus.PointingGame,
    "energy": quantus.RelevanceMassAccuracy,
    "rank_accuracy": quantus.RelevanceRankAccuracy,
}


def main() -> None:
    train, _, test = xai_tris("linear")
    test = test.first(100)
    torch.manual_seed(0)
    model = CNN8by8()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for rows in torch.randperm(len(train)).repeat(5).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train.images[rows]), train.labels[rows]).backward()
        optimizer.step()
    model.eval()
    prior = agop.fit(model, zip(train.images.split(500), train.labels.split(500), strict=True), progress=False)

    x, y, s = test.images.numpy(), test.labels.numpy(), test.masks[:, None].numpy()
    for method in ("vanilla", "integrated-gradients", "agop-weighted", "captum:InputXGradient"):
        explain_func = as_quantus(method, prior)
        arguments = {"model": model, "x_batch": x, "y_batch": y, "channel_first": True, "explain_func": explain_func}
        maps = torch.from_numpy(explain_func(model, x, y)[:, 0])
        print(method)
        for ours, theirs in METRICS.items():
            metric = theirs(disable_warnings=True, display_progressbar=False)
            score = np.nanmean(np.array(metric(**arguments, s_batch=s), float))
            mine = float(agop.metrics.get(ours)(maps, test.masks).nanmean())
            print(f"  {theirs.__name__:22} {score:.3f}   agop's {ours:14} {mine:.3f}")
        flipping = quantus.PixelFlipping(
            features_in_step=4, perturb_baseline=0.0, return_auc_per_sample=True, disable_warnings=True
        )
        print(f"  PixelFlipping, area    {np.mean(flipping(**arguments, softmax=True)) / 15:.3f}   lower is better")


if __name__ == "__main__":
    main()
