"""The page with all explanations: order, escaping and links."""

import os
import re

import numpy as np
import pytest

from agop.pictures.overview import Overview
from agop.pictures.predictions import Prediction

SCRIPT = "<script>document.title='gone'</script>"
PICTURES = [np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 90, np.uint8)]


def write(folder, predictions, names=("cat", "dog"), pictures=PICTURES, **options):
    page = Overview(folder / "index.html", names)
    for prediction in predictions:
        page.add(prediction, pictures)
    page.write(
        predictions, options.pop("skipped", []), **({"model": "m", "methods": ["vanilla"], "target": None} | options)
    )
    return (folder / "index.html").read_text()


def files(page):
    return re.findall(r'<th scope="row"[^>]*><bdi>(.*?)</bdi>', page)


def test_wrong_predictions_come_first(tmp_path):
    labels = {"a.png": 0, "b.png": 1, "c.png": None, "d.png": 1}
    probabilities = (0.9, 0.6, 0.7, 0.8)
    predictions = [
        Prediction(file, f"overlays/{file}", 0, probability, 0, label)
        for (file, label), probability in zip(labels.items(), probabilities, strict=True)
    ]
    page = write(tmp_path, predictions)
    assert files(page) == ["d.png", "b.png", "a.png", "c.png"]
    assert page.count("✗ wrong") == 2
    assert page.count("✓ correct") == 1
    assert "4 images, 1 of 3 with a known class classified correctly" in page
    assert "unlabelled" in write(tmp_path, predictions[2:3]).split("<table")[1]


def test_text_from_files_is_escaped(tmp_path):
    name = f'{SCRIPT}"&\u202e.png'
    prediction = Prediction(name, f"overlays/{name}", 0, 0.5, 1, 1)
    page = write(
        tmp_path, [prediction], (SCRIPT, f"{SCRIPT}2"), skipped=[SCRIPT], model=SCRIPT, methods=[SCRIPT, "b"], target=0
    )
    assert "<script>document" not in page
    assert page.count("&lt;script&gt;document") >= 7
    assert 'href="overlays/%3Cscript%3Edocument.title%3D%27gone%27%3C/script%3E%22%26%E2%80%AE.png"' in page


def test_names_that_are_not_utf8_are_shown_and_linked(tmp_path):
    name = os.fsdecode(b"\xff.png")
    page = write(tmp_path, [Prediction(name, f"overlays/{name}", 0, 0.5, 0)])
    assert files(page) == ["\ufffd.png"]
    assert 'href="overlays/%FF.png"' in page


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (400, "jpeg")])
def test_images_are_small_and_inside_the_page(tmp_path, side, kind):
    pictures = [np.random.default_rng(0).integers(0, 255, (side, side, 3)).astype(np.uint8)] * 2
    page = write(tmp_path, [Prediction("a.png", "overlays/a.png", 0, 0.5, 0)], pictures=pictures)
    assert page.count(f'src="data:image/{kind};base64,') == page.count(" src=") == 2
    assert len(page) < 40_000
