"""Results as HTML."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from agop.app import cards, example
from agop.pictures.colouring import Colouring, top_value
from agop.pictures.heat import COLOUR_MAPS, heat


def images_of(page):
    """Images (H,W,3) of a card by their captions."""
    pairs = re.findall(r"<figcaption>(.*?)</figcaption><img src=\"data:image/png;base64,(.*?)\"", page)
    return {name: np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))) for name, content in pairs}


def test_each_map_of_a_card_has_its_own_scale(session):
    outcome = session.explain(example.images()[:1], ["random", "vanilla"])
    page = cards.page_of(outcome, Colouring(percentile=60, colours="jet"))
    images = images_of(page)
    for name, saliency in outcome.results[0].maps.items():
        top = top_value(saliency.double().numpy(), 60)
        assert np.array_equal(images[name], heat(saliency.double().numpy(), top, "jet"))
    assert "a pixel’s value, relative to its map’s top value" in page
    assert "<span>0\u00a0%</span><span>50\u00a0%</span><span>100\u00a0%</span>" in page
    for colour in COLOUR_MAPS["jet"]:
        assert "rgb({},{},{})".format(*colour) in page


def test_maps_of_a_card_on_the_common_scale_and_the_colour_bar_ends_at_the_largest_share(session):
    outcome = session.explain(example.images()[:1], ["random", "vanilla", "agop-weighted"])
    maps = {name: saliency.double().numpy() for name, saliency in outcome.results[0].maps.items()}
    parts = {name: saliency / saliency.sum() for name, saliency in maps.items()}
    top = max(part.max() for part in parts.values())
    assert min(part.max() for part in parts.values()) < top / 2  # a scale per map would differ
    page = cards.page_of(outcome, Colouring("common", percentile=100))
    assert f"{100 * top:.2g}\u00a0%" in page
    assert " %" not in page  # no line break between a number and its sign
    images = images_of(page)
    assert list(images) == ["image", "random", "vanilla", "agop-weighted"]
    assert np.array_equal(images["image"], outcome.results[0].picture)
    for name, part in parts.items():
        assert np.array_equal(images[name], heat(np.sqrt(part / top), 1.0))


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>.png", "${alert(1)}.png", "{{value}}.png"])
def test_file_names_are_escaped(session, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(example.images()[0].read_bytes())
    (tmp_path / f"bad{name}").write_text("a note")
    page = cards.page_of(session.explain([path, tmp_path / f"bad{name}"], ["vanilla"]))
    assert name not in page
    assert "<img src=x" not in page
    assert "${" not in page
    assert "{{" not in page


def test_classes_have_their_names(session):
    outcome = session.explain(example.images()[:1], ["vanilla"])
    page = cards.page_of(outcome)
    assert "is predicted to be</span> L <span>" in page
    assert page.index("<td>L</td>") < page.index("<td>T</td>")
    assert "<td>class 1</td>" in cards.card(outcome.results[0], ())
