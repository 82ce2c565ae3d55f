"""diag(M) as pictures, and an AGOP as HTML."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from agop.statistic.concentration import Overview
from agop.statistic.drawing import panels, picture
from agop.statistic.provenance import Provenance
from tests.unit.statistic.test_concentration import of_classes, patches


def lightness(image):
    return np.asarray(image.convert("L"), dtype=int)


def test_lightness_increases_with_the_value_and_the_maximum_is_brightest():
    saliency = torch.arange(256.0).reshape(16, 16)
    levels = lightness(picture(saliency)).flatten()
    assert (np.diff(levels) >= 0).all()
    assert levels[0] < 5
    assert levels[-1] > 240
    assert np.array_equal(np.asarray(picture(saliency)), np.asarray(picture(1e6 * saliency)))


def test_a_map_of_zeros_is_black():
    assert lightness(picture(torch.zeros(4, 4))).max() < 5


def test_panels_show_all_samples_and_the_most_concentrated_classes_first():
    prior = of_classes(patches(40, 7), [50] * 40)
    captions, images = zip(*panels(prior, Overview.of(prior)), strict=True)
    assert len(captions) == 24
    assert captions[:2] == ("2.3 % in 16 px: all samples", "24 % in 16 px: class 7")
    levels = lightness(images[1])
    assert levels[28:, :4].min() > 240 > 100 > levels[:28].max()


def test_a_notebook_shows_the_facts_the_concentration_and_the_maps():
    prior = of_classes(patches(2, 1), [50, 50], ["cat", "<b>horse</b>"])
    text = prior._repr_html_()
    assert "class &lt;b&gt;horse&lt;/b&gt;: 24 % of diag(M) in 16 of 1,024 pixels, at the lower left" in text
    assert "<b>horse" not in text
    pictures = [Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall('base64,([^"]+)', text)]
    assert [image.size for image in pictures] == [(32, 32)] * 3


@pytest.mark.parametrize("diagonal", [torch.ones(3, 5, 7), torch.zeros(1, 2, 2)], ids=["whole", "zeros"])
def test_a_prior_made_by_hand_is_shown(diagonal):
    text = agop.AGOP(diagonal, 3, provenance=Provenance())._repr_html_()
    assert text.count("<img") == 1
    assert "preprocessing not recorded" in text
