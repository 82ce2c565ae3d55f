"""Draw a few validation scenes of a CLEVR-XAI run with what its methods show, into the file that is named."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import agop
from agop import scenarios
from agop.bench.entries import Entries
from agop.networks.weights import load_weights
from agop.pictures import IMAGENET
from agop.runs.spec import RunSpec
from agop.sheets import sheet, stacked

SHOWN = ("vanilla", "integrated-gradients", "smoothgrad", "gradcam", "agop-weighted", "agop-global", "mean-mask")


def picture(image: Tensor) -> NDArray[np.uint8]:
    """A normalised image as RGB."""
    mean, std = (torch.tensor(IMAGENET[name])[:, None, None] for name in ("mean", "std"))
    return ((image * std + mean).clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()


def main() -> None:
    """The first three scenes that the network tells right, a row each."""
    run, out = Path(sys.argv[1]), Path(sys.argv[2])
    spec = RunSpec.load(run)
    (cell,) = spec.cells()
    scenario = scenarios.get(cell.scenario).configured(spec.options)
    training, _, test = scenario.splits(cell.background, cell.seed, spec.masks)
    model = scenario.network().eval()
    load_weights(model, run / "cells" / cell.name / "checkpoint.safetensors")
    prior = agop.AGOP.load(run / "cells" / cell.name / "agop.safetensors")
    entries = Entries(scenario, training, {scenario.prior: prior})
    finer = next(name for name in spec.methods if name.startswith("gradcam@"))
    rows = (model(test.images[:50]).argmax(1) == test.labels[:50]).nonzero().flatten()[:3]
    maps = {"truth": test.masks[rows].float()}
    with warnings.catch_warnings():  # a 2×2 map is what the paper's GradCAM has
        warnings.simplefilter("ignore", agop.AGOPWarning)
        for name in (*SHOWN[:4], finer, *SHOWN[4:]):
            entry = entries.entry(name)
            maps[name] = agop.explain(model, test.images[rows], entry.method, entry.prior, layer=entry.layer)
    sheets = [
        sheet(picture(test.images[row]), {name: found[place].numpy() for name, found in maps.items()})
        for place, row in enumerate(rows.tolist())
    ]
    page = stacked(sheets)
    page.resize((page.width * 2 // 3, page.height * 2 // 3), Image.Resampling.LANCZOS).save(out)


if __name__ == "__main__":
    main()
