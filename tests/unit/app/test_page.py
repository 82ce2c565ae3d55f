"""The page's answers, and the modules that import Gradio."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import agop
from agop.app import cards, example
from agop.app.page import Page
from agop.cli.app import load_session
from agop.pictures.colouring import Colouring


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


class ExitingBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        sys.exit("bye")


class Exits(torch.nn.Module):
    """Ends the process in its forward pass, or in its backward pass, for all but black images."""

    def __init__(self, backward=False):
        super().__init__()
        self.fc, self.backward = torch.nn.Linear(64, 2), backward

    def forward(self, x):
        if self.backward:
            x = ExitingBackward.apply(x)
        elif x.any():
            sys.exit("bye")
        return self.fc(x.flatten(1))


def exits_backward():
    return Exits(backward=True)


@pytest.mark.filterwarnings("ignore:.*random weights", "ignore:.*preprocessing")
@pytest.mark.parametrize(("model", "message"), [("Exits", "sys.exit(&#x27;bye&#x27;)"), ("exits_backward", "bye")])
def test_model_that_calls_sys_exit_gives_an_error_on_the_page(tmp_path, model, message):
    change = {"model": f"{__name__}:{model}", "prior": None, "layer": None, "names": None}
    page = Page(load_session(**example.ARGUMENTS | change), tmp_path)
    answer, _ = page.explain([str(example.images()[0])], ["vanilla"], "own", 98, 1, "inferno", lambda *_: None)
    assert "Error" in answer
    assert message in answer
