"""The page's eigenvectors: filters from prior and checkpoint, eigenimages from the sketch."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import agop
from agop.errors import FileError
from agop.pictures.heat import signed_picture
from agop.report.formats import registry
from agop.report.page.eigenvector_view import eigenvector_views
from agop.report.run import Run
from agop.runs.cell_files import seal
from tests import zoo
from tests.report_runs import write_evaluation, write_xai_tris

CELL = "cells/linear-uncorrelated-000"


@pytest.fixture
def folder(tmp_path):
    write_xai_tris(tmp_path, seeds=1, scenarios=("linear", "xor"))
    return tmp_path


def fitted(model, shape=(3, 12, 12), **options):
    return agop.fit(model, [zoo.images(9, shape=shape)], only_correct=False, progress=False, **options)


def add(cell, prior, model=None):
    """The prior, and the model's weights, as files of a cell."""
    prior.save(cell / "agop.safetensors")
    if model is not None:
        save_file(model.state_dict(), cell / "checkpoint.safetensors")
    seal(cell)


def picture(panel):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(panel.picture.split(",")[1])))).astype(int)


def test_filters_are_the_eigenvectors_of_the_first_cell(folder):
    model = zoo.build("plain")
    prior = fitted(model)
    add(folder / CELL, prior, model)
    add(folder / "cells/linear-correlated-000", prior, model)
    (view,) = eigenvector_views(Run(folder))
    assert (view.place, view.layer, view.eigenimages) == ("linear / uncorrelated", "body.0", [])
    weight = model.body[0].weight.detach().double().flatten(1)
    values, vectors = torch.linalg.eigh(weight.T @ prior.patch_matrix @ weight)
    shares = values.flip(0) / values.sum()
    assert len(view.filters) == 6
    for panel, vector, share in zip(view.filters, vectors.T.flip(0), shares, strict=False):
        assert float(panel.percent.removesuffix(" %")) == pytest.approx(100 * float(share), rel=0.06)
        assert np.abs(picture(panel) - signed_picture(vector.reshape(3, 3, 3).numpy())).max() <= 1


def test_eigenimages_need_no_weights_and_come_with_the_residual_share(tmp_path):
    write_evaluation(tmp_path, {"random": [0.1, 0.2]}, "my scans")
    model = agop.networks.CNN8by8()
    prior = fitted(model, (1, 8, 8), rank=5)
    add(tmp_path / "cells" / "my scans-given-000", prior)
    (view,) = eigenvector_views(Run(tmp_path))
    assert (view.place, view.filters) == ("my scans", [])
    _, _, vectors = torch.linalg.svd(prior.sketch_rows.flatten(1), full_matrices=False)
    assert np.abs(picture(view.eigenimages[0]) - signed_picture(vectors[0].reshape(1, 8, 8).numpy())).max() <= 1
    assert view.residual == f"{100 * prior.residual_share:.3g} %"
    text = registry.get("html")(Run(tmp_path))
    assert f"residual share {view.residual}" in text
    assert "What the first layer looks for" not in text


def test_the_page_shows_filters_with_their_shares(folder):
    model = zoo.build("plain")
    add(folder / CELL, fitted(model, rank=4), model)
    text = registry.get("html")(Run(folder))
    assert "What the first layer looks for" in text
    (view,) = eigenvector_views(Run(folder))
    captions = re.findall(r"<figcaption>([\d.]+ %)</figcaption>", text)
    assert captions == [panel.percent for panel in (*view.filters, *view.eigenimages)]
    assert len(view.eigenimages) > 0


def _without_parts(cell):
    model = zoo.build("plain")
    add(cell, fitted(model, patches=False), model)


def _without_weights(cell):
    add(cell, fitted(zoo.build("plain")))


def _at_tokens(cell):
    model = zoo.build("attention")
    add(cell, fitted(model, layer="block.norm1"), model)


def _with_groups(cell):
    model = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.Flatten(), nn.Linear(600, 3))
    add(cell, fitted(model), model)


@pytest.mark.parametrize("change", [lambda cell: None, _without_parts, _without_weights, _at_tokens, _with_groups])
def test_runs_without_filters_and_sketch_have_no_panel(folder, change):
    change(folder / CELL)
    assert eigenvector_views(Run(folder)) == []
    assert 'id="eigenvectors"' not in registry.get("html")(Run(folder))


@pytest.mark.parametrize("name", ["patch_matrix", "sketch"])
def test_parts_that_are_not_finite_raise(folder, name):
    model = zoo.build("plain")
    prior = fitted(model, rank=4)
    getattr(prior, name)[0, 0] = torch.nan
    add(folder / CELL, prior, model)
    with pytest.raises(FileError, match=rf"agop.safetensors is damaged \({name} isn't finite\): delete"):
        eigenvector_views(Run(folder))
