"""The embedded example."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import agop
from agop.app import example
from agop.app.example import make
from agop.scenarios import xai_tris
from tests.agop_files import metadata_of


def test_example_is_small_and_its_prior_matches_its_network():
    files = [path for path in example.FOLDER.iterdir() if path.suffix in (".safetensors", ".png", ".txt")]
    assert len(files) == 6
    assert sum(path.stat().st_size for path in files) < 300_000
    prior = agop.AGOP.load(example.PRIOR)
    assert "checksum" in metadata_of(example.PRIOR.read_bytes())
    assert "training-accumulated" in repr(prior)
    assert prior.layer == "conv1"
    assert prior.patch_matrix.shape == (4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prior.check(example.network(), torch.zeros(1, 1, 8, 8))


def test_example_is_classified_correctly_and_explained_by_its_shape(session):
    outcome = session.explain(example.images(), ["random", "agop-weighted"])
    assert not outcome.skipped
    test = xai_tris("linear")[2]
    for result in outcome.results:
        label = "TL".index(result.path.name[0])
        assert result.predicted == label
        mask = test.masks[test.labels == label][0]
        saliency = result.maps["agop-weighted"]
        assert float((saliency * mask).sum() / saliency.sum()) > 3 * float(mask.float().mean())


@pytest.mark.slow
def test_script_makes_the_same_example(tmp_path):
    """Up to a few percent: over 40 epochs, float32 rounding drifts apart between CPUs."""
    make.make(tmp_path)
    for path in (example.WEIGHTS, example.PRIOR):
        stored, remade = load_file(path), load_file(tmp_path / path.name)
        for name, values in stored.items():
            assert float((remade[name] - values).norm() / values.norm()) < 0.1
    assert [path.name for path in example.images()] == sorted(path.name for path in tmp_path.glob("*.png"))
    for path in example.images():
        assert np.array_equal(np.asarray(Image.open(path)), np.asarray(Image.open(tmp_path / path.name)))
