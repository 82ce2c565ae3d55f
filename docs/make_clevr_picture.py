"""Draw three test scenes of a CLEVR-XAI run with the maps of its methods: `make_clevr_picture.py RUN FILE`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

import agop
from agop.bench import scenarios
from agop.bench.runner import resolve_methods
from agop.images.overlays import pixels, sheet
from agop.model.load import load_weights
from agop.report.folder import RunSpec

METHODS = ("vanilla", "integrated-gradients", "smoothgrad", "gradcam", "agop-weighted", "agop-global", "agop")


def main() -> None:
    """The first three scenes that the network classifies correctly, one below the other."""
    run, out = Path(sys.argv[1]), Path(sys.argv[2])
    spec = RunSpec.load(run)
    (cell,) = spec.cells()
    scenario = scenarios.get(cell.scenario).with_options(spec.options)
    training, _, test = scenario.splits(cell.background, cell.seed, spec.masks)
    model = scenario.network().eval()
    load_weights(model, run / "cells" / cell.name / "checkpoint.safetensors")
    prior = agop.AGOP.load(run / "cells" / cell.name / "agop.safetensors")
    finer = next(name for name in spec.methods if name.startswith("gradcam@"))
    rows = (model(test.images[:50]).argmax(1) == test.labels[:50]).nonzero().flatten()[:3]
    maps = {"truth": test.masks[rows].float()}
    with warnings.catch_warnings():  # GradCAM warns about its 2×2 map, which is the paper's
        warnings.simplefilter("ignore", agop.AGOPWarning)
        names = (*METHODS[:4], finer, *METHODS[4:])
        entries, _ = resolve_methods(names, scenario, training, {scenario.prior: prior}, cell)
        for name, entry in entries.items():
            maps[name] = agop.explain(model, test.images[rows], entry.method, entry.prior, layer=entry.layer)
    sheets = [
        sheet(picture, {name: values[index].numpy() for name, values in maps.items()})
        for index, picture in enumerate(pixels(test.images[rows], scenario.black, scenario.white))
    ]
    page = Image.fromarray(np.concatenate([np.asarray(each) for each in sheets]))  # one below the other
    page.resize((page.width * 2 // 3, page.height * 2 // 3), Image.Resampling.LANCZOS).save(out)


if __name__ == "__main__":
    main()
