"""Results as HTML."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from agop.app import cards, example
from agop.pictures.heat import heat


def images_of(page):
    """Images (H,W,3) of a card by their captions."""
    pairs = re.findall(r"<figcaption>(.*?)</figcaption><img src=\"data:image/png;base64,(.*?)\"", page)
    return {name: np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))) for name, content in pairs}


def test_maps_of_a_card_have_one_scale_and_the_colour_bar_ends_at_the_largest_share(session):
    outcome = session.explain(example.images()[:1], ["random", "vanilla", "agop-weighted"])
    maps = {name: saliency.double().numpy() for name, saliency in outcome.results[0].maps.items()}
    parts = {name: saliency / saliency.sum() for name, saliency in maps.items()}
    top = max(part.max() for part in parts.values())
    assert min(part.max() for part in parts.values()) < top / 2  # a scale per map would differ
    page = cards.page_of(outcome)
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
