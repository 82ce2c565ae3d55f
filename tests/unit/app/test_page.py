"""The page's answers and its folder, and the modules that import Gradio."""

import json
import zipfile
from pathlib import Path

import pytest

import agop
from agop.app import cards, example
from agop.app.page import Page, forget
from agop.pictures.colouring import Colouring


def test_old_uploads_are_removed_and_examples_kept(tmp_path):
    for name in ("examples", "upload"):
        (tmp_path / name).mkdir()
    forget(tmp_path, 100)
    assert (tmp_path / "upload").exists()
    forget(tmp_path, -100)
    assert [path.name for path in tmp_path.iterdir()] == ["examples"]


def test_only_the_page_imports_gradio():
    source = Path(agop.__file__).parent
    assert [path.name for path in source.rglob("*.py") if "import gradio" in path.read_text()] == ["page.py"]


def test_controls_set_the_colours_of_cards_and_download(session, tmp_path):
    page = Page(session, tmp_path)
    html, download = page.explain(example.images()[:1], ["vanilla"], "common", 90, 0.5, "gray", lambda *_: None)
    colouring = Colouring("common", 90, 0.5, "gray")
    assert html == cards.page_of(session.explain(example.images()[:1], ["vanilla"]), colouring)
    with zipfile.ZipFile(download["value"]) as archive:
        manifest = json.loads(archive.read("explanations/manifest.json"))
    assert Colouring(**manifest["colouring"]) == colouring


@pytest.mark.parametrize(("scale", "percentile", "message"), [("x", 98, "no scale is named"), ("own", 0, "percentile")])
def test_invalid_colours_are_an_error_on_the_page(session, tmp_path, scale, percentile, message):
    html, _ = Page(session, tmp_path).explain(example.images(), ["vanilla"], scale, percentile, 1.0, "gray")
    assert message in html
    assert "agop-card" not in html
