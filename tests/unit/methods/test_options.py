"""Options in the name of a method."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import agop
from agop import methods
from agop.errors import InputError
from agop.methods.options import split_options, with_options
from agop.networks import CNN8by8


@dataclass(frozen=True)
class Configured(agop.methods.Method):
    """A method with options of many types, without a name: it isn't registered."""

    steps: int
    share: float = 0.5
    fast: bool = False
    text: str | None = None
    either: int | str = 0
    sides: tuple[int, ...] = (1,)
    call: object = None

    name: ClassVar[str]

    def maps(self, job):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("name", "base", "options"),
    [
        ("vanilla", "vanilla", {}),
        ("integrated-gradients:steps=20", "integrated-gradients", {"steps": "20"}),
        ("package.module:CLASS", "package.module:CLASS", {}),
        ("package.module:CLASS:a=1, b_2=x=y", "package.module:CLASS", {"a": "1", "b_2": "x=y"}),
        ("captum:Occlusion:strides=(1,2),seed=3", "captum:Occlusion", {"strides": "(1,2)", "seed": "3"}),
        ("gradcam:layer=layer4.1", "gradcam", {"layer": "layer4.1"}),
    ],
)
def test_the_name_ends_where_the_first_option_starts(name, base, options):
    assert split_options(name) == (base, options)


def test_values_have_the_types_of_the_fields():
    texts = {"steps": "3", "share": "1e-2", "fast": "True", "text": "none", "either": "x1", "sides": "(1, 2)"}
    assert with_options("mine", Configured, texts) == Configured(3, 0.01, True, None, "x1", (1, 2))
    assert with_options("mine", Configured(3, 0.1), {"steps": "4", "either": "7"}) == Configured(4, 0.1, either=7)
    assert with_options("mine", Configured(3), {}) == Configured(3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("integrated-gradients:step=20", "no option of integrated-gradients is named 'step': did you mean 'steps'"),
        ("integrated-gradients:steps=2.5", "integrated-gradients: steps is '2.5': give a whole number"),
        ("integrated-gradients:steps=0", "steps is 0: give a positive number"),
        ("integrated-gradients:baseline=black", "baseline is 'black': give a number"),
        ("integrated-gradients:20", "'20' isn't an option of integrated-gradients: .*:OPTION=VALUE"),
        ("vanilla:steps=20", "vanilla has no options"),
        ("vanila:steps=20", "did you mean 'vanilla'"),
        ("smoothgrad:sigma=x,seed=1", "sigma is 'x': give a number"),
    ],
)
def test_wrong_options_raise(name, message):
    with pytest.raises(InputError, match=message):
        methods.create(name)


def test_explain_and_evaluate_take_options_in_the_name():
    torch.manual_seed(0)
    model, images = CNN8by8(), torch.randn(3, 1, 8, 8)
    names = ["integrated-gradients:steps=3,baseline=0.5", "integrated-gradients:steps=4"]
    expected = agop.explain(model, images, methods.IntegratedGradients(steps=3, baseline=0.5))
    assert torch.equal(agop.explain(model, images, names[0]), expected)
    masks = torch.rand(3, 8, 8) < 0.4
    scores = agop.evaluate(model, images, masks, names, metrics="energy", controls=False).scores
    assert list(scores) == names
    assert not torch.equal(*(scores[name]["energy"] for name in names))


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_the_layer_in_the_name_comes_before_the_common_one():
    torch.manual_seed(0)
    model, images, masks = CNN8by8(), torch.randn(3, 1, 8, 8), torch.rand(3, 8, 8) < 0.4
    names = ["gradcam", "gradcam:layer=conv1"]
    scores = agop.evaluate(model, images, masks, names, metrics="energy", layer="conv3").scores
    alone = agop.evaluate(model, images, masks, "gradcam", metrics="energy", layer="conv1").scores
    assert torch.equal(scores["gradcam:layer=conv1"]["energy"], alone["gradcam"]["energy"])
    assert not torch.equal(scores["gradcam"]["energy"], alone["gradcam"]["energy"])
