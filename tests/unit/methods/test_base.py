"""Methods by name: options in the name, and the user's own by package.module:NAME."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import agop
from agop import methods
from agop.bench import CNN8by8
from agop.errors import InputError
from tests.command import error_of, run_checked

MINE = '''
from dataclasses import dataclass
from typing import ClassVar
from torch import Tensor, ones
import agop
from agop.methods import Job, Method
from agop.methods.base import sum_channels

@dataclass(frozen=True)
class TimesInput(Method):
    """The gradient times the image."""
    name: ClassVar[str] = "times-input-of-the-tests"
    power: float = 1.0

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.gradients() * job.probe.placed(job.images)) ** self.power

@dataclass(frozen=True)
class WithPrior(Method):
    """diag(M) again."""
    name: ClassVar[str] = "with-prior-of-the-tests"
    needs_prior: ClassVar[bool] = True
    table: object = ones(2)

    def maps(self, job: Job) -> Tensor:
        return job.prior.map.expand(len(job.images), -1, -1).clone()

@dataclass(frozen=True)
class Wants(Method):
    """A required option."""
    power: float
    name: ClassVar[str] = "wants-of-the-tests"

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.gradients()) ** self.power

@dataclass(frozen=True)
class Configured(Method):
    """Options of many types."""
    steps: int
    share: float = 0.5
    fast: bool = False
    text: str | None = None
    either: int | str = 0
    sides: tuple[int, ...] = (1,)
    name: ClassVar[str] = "configured-of-the-tests"

    def maps(self, job: Job) -> Tensor:
        raise NotImplementedError

four = Configured(4, 0.1)
squared = TimesInput(power=2.0)
longer = agop.methods.IntegratedGradients(steps=3)
cubed = Wants(3.0)
number = 3
def function():
    return squared
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Modules with valid and invalid methods, weights, images with masks, and a prior."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "package_of_mine").mkdir()
    for name in ("mine_of_the_tests.py", "package_of_mine/inner.py"):
        (folder / name).write_text(MINE.replace("of-the-tests", "in-a-package") if "/" in name else MINE)
    (folder / "method_raises.py").write_text("1 / 0\n")
    (folder / "method_taken.py").write_text(MINE.replace("times-input-of-the-tests", "vanilla"))
    torch.manual_seed(0)
    model = CNN8by8()
    save_file(model.state_dict(), folder / "w.safetensors")
    how = agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    prior = agop.fit(model, [torch.randn(20, 1, 8, 8)], only_correct=False, progress=False)
    prior.save(folder / "prior.safetensors", preprocessing=how)
    draw = np.random.default_rng(0)
    for kind in ("pictures", "masks"):
        (folder / kind).mkdir()
        for index in range(3):
            pixels = draw.integers(0, 255, (8, 8)) if kind == "pictures" else 255 * np.eye(8)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"{index}.png")
    return folder


@pytest.fixture(autouse=True, scope="module")
def registry():
    """Forget the methods of this file afterwards: other tests use every registered method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods.registry, "plugins", dict(methods.registry.plugins))
        yield


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


MODEL, MODEL_OPTIONS = "agop.bench:CNN8by8", ("--weights", "w.safetensors", "--prior", "prior.safetensors")
NAMES = ("mine_of_the_tests:TimesInput", "mine_of_the_tests:squared", "package_of_mine.inner:WithPrior")
METHOD_OPTIONS = [word for name in NAMES for word in ("--method", name)]


def test_classes_and_configured_objects_work_in_explain_and_evaluate(inside):
    model, images = CNN8by8(), torch.randn(4, 1, 8, 8)
    plain, squared = (agop.explain(model, images, name) for name in NAMES[:2])
    gradients = agop.input_gradients(model, images).values
    torch.testing.assert_close(plain, (gradients * images).abs().sum(1))
    torch.testing.assert_close(squared, plain**2)
    for name in ("mine_of_the_tests:cubed", "mine_of_the_tests:Wants:power=3", "mine_of_the_tests:cubed:power=3"):
        torch.testing.assert_close(agop.explain(model, images, name), gradients.abs().sum(1) ** 3)
    torch.testing.assert_close(agop.explain(model, images, f"{NAMES[1]}:power=1"), plain)
    longer = agop.explain(model, images, "mine_of_the_tests:longer")
    torch.testing.assert_close(longer, agop.explain(model, images, methods.IntegratedGradients(steps=3)))
    masks = torch.rand(4, 8, 8) < 0.4
    scored = agop.evaluate(model, images, masks, [NAMES[0], NAMES[1], "vanilla"], metrics=["energy"], controls=False)
    assert list(scored.scores) == [NAMES[0], NAMES[1], "vanilla"]
    assert "TimesInput" in repr(scored)


def test_options_in_a_name_have_the_types_of_the_fields(inside):
    name = "mine_of_the_tests:Configured:steps=3,share=1e-2, fast=True,text=none,either=x1,sides=(1, 2)"
    method = methods.create(name)
    assert method == type(method)(3, 0.01, True, None, "x1", (1, 2))
    assert methods.create("mine_of_the_tests:Configured:steps=1,text=a=b").text == "a=b"
    changed = methods.create("mine_of_the_tests:four:either=7")
    assert changed == type(changed)(4, 0.1, either=7)
    assert methods.create("gradcam:layer=layer4.1") == methods.GradCAM("layer4.1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine_of_the_tests:Nothing", "known: mine_of_the_tests:TimesInput, mine_of_the_tests:WithPrior"),
        ("mine_of_the_tests:TimeInput", "did you mean 'mine_of_the_tests:TimesInput'"),
        ("mine_of_the_tests:number", "is a int: .* agop.methods.Method"),
        ("mine_of_the_tests:function", "is a function: .* agop.methods.Method"),
        ("mine_of_the_tests:Method", "Method has no maps"),
        ("mine_of_the_tests:Wants", r"needs options .*power.*: set them, mine_of_the_tests:Wants:OPTION=VALUE"),
        ("mine_of_the_tests.py:TimesInput", "omit the .py"),
        ("nowhere_at_all:TimesInput", "no module named nowhere_at_all: run this from its folder"),
        ("method_raises:Any", "method_raises can't be imported: ZeroDivisionError: division by zero"),
        ("method_taken:TimesInput", "there is already a method named 'vanilla'"),
        ("mine_of_the_tests:", "no method is named"),
        (":TimesInput", "no method is named"),
        ("gradient-times-nothing", r"package\.module:CLASS"),
    ],
)
def test_invalid_method_names_raise(inside, name, message):
    with pytest.raises(InputError, match=message):
        agop.explain(CNN8by8(), torch.randn(2, 1, 8, 8), name)


def test_method_may_have_the_name_of_its_module(inside, tmp_path, monkeypatch):
    code = MINE.partition("@dataclass(frozen=True)\nclass WithPrior")[0].replace(
        "times-input-of-the-tests", "same_name"
    )
    (tmp_path / "same_name.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):  # the second time, the method is registered
        assert methods.get("same_name:TimesInput").name == "same_name"
    assert methods.create("same_name:TimesInput:power=3").power == 3


def test_explain_command_takes_own_methods(folder):
    run_checked("explain", MODEL, "pictures", *MODEL_OPTIONS, *METHOD_OPTIONS, "--out", "out", folder=folder)
    maps = load_file(folder / "out" / "maps.safetensors")
    assert set(maps) == set(NAMES)
    torch.testing.assert_close(maps[NAMES[1]], maps[NAMES[0]] ** 2)
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    assert [manifest["methods"][name].get("power") for name in NAMES] == [1.0, 2.0, None]


def test_evaluate_command_takes_own_methods(folder):
    options = (*MODEL_OPTIONS, *METHOD_OPTIONS, "--metric", "energy", "--out", "scored")
    run_checked("evaluate", MODEL, "pictures", "masks", *options, folder=folder)
    rows = [json.loads(line) for line in (folder / "scored" / "rows.jsonl").read_text().splitlines()]
    assert {row["method"] for row in rows if row["metric"] == "energy"} == {*NAMES, "centre", "mean-mask"}
    run_checked("report", "scored", folder=folder)
    about = json.loads((folder / "scored" / "about.json").read_text())
    assert about["methods"][NAMES[0]] == "The gradient times the image."


@pytest.mark.parametrize(
    "command",
    [
        ("explain", MODEL, "pictures", *MODEL_OPTIONS),
        ("evaluate", MODEL, "pictures", "masks", *MODEL_OPTIONS),
        ("bench", "xai-tris", "--quick"),
    ],
)
def test_invalid_method_name_stops_a_command_before_any_work(folder, command):
    for name, message in (("method_raises:A", "can't be imported"), ("mine_of_the_tests:Wants", "needs options")):
        error = error_of(*command, "--method", "vanilla", "--method", name, "--out", "bad", folder=folder)
        assert message in error
        assert len(error.splitlines()) == 1
        assert not (folder / "bad").exists()


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
def test_wrong_options_in_a_name_raise(name, message):
    with pytest.raises(InputError, match=message):
        methods.create(name)


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_the_layer_in_the_name_comes_before_the_common_one():
    torch.manual_seed(0)
    model, images, masks = CNN8by8(), torch.randn(3, 1, 8, 8), torch.rand(3, 8, 8) < 0.4
    names = ["gradcam", "gradcam:layer=conv1"]
    scores = agop.evaluate(model, images, masks, names, metrics="energy", layer="conv3").scores
    alone = agop.evaluate(model, images, masks, "gradcam", metrics="energy", layer="conv1").scores
    assert torch.equal(scores["gradcam:layer=conv1"]["energy"], alone["gradcam"]["energy"])
    assert not torch.equal(scores["gradcam"]["energy"], alone["gradcam"]["energy"])
