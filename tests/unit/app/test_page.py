"""The page, and the modules that import Gradio."""

import sys
from pathlib import Path

import pytest
import torch

import agop
from agop.app import example
from agop.app.page import Page
from agop.cli.app import load_session


def test_only_the_page_imports_gradio():
    source = Path(agop.__file__).parent
    assert [path.name for path in source.rglob("*.py") if "import gradio" in path.read_text()] == ["page.py"]


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


@pytest.mark.parametrize(("model", "message"), [("Exits", "sys.exit(&#x27;bye&#x27;)"), ("exits_backward", "bye")])
def test_model_that_calls_sys_exit_gives_an_error_on_the_page(tmp_path, model, message):
    change = {"model": f"{__name__}:{model}", "prior": None, "layer": None, "names": None}
    page = Page(load_session(**example.ARGUMENTS | change), tmp_path)
    answer, _ = page.explain([str(example.images()[0])], ["vanilla"], lambda *_: None)
    assert "Error" in answer
    assert message in answer
