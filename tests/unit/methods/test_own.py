"""A method in a file of one's own, named package.module:CLASS wherever a method is named: real files and processes."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import agop
from agop import methods
from agop.errors import InputError, UnknownNameError
from agop.networks import CNN8by8
from tests.command import run, run_process

MINE = '''
from dataclasses import dataclass
from typing import ClassVar
from torch import Tensor, ones
import agop
from agop.methods import Job, Method
from agop.methods.channels import sum_channels

@dataclass(frozen=True)
class TimesInput(Method):
    """The gradient times the image."""
    name: ClassVar[str] = "times-input-of-the-tests"
    power: float = 1.0

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.gradients() * job.probe.placed(job.images)) ** self.power

@dataclass(frozen=True)
class WithPrior(Method):
    """diag(M), once more."""
    name: ClassVar[str] = "with-prior-of-the-tests"
    needs_prior: ClassVar[bool] = True
    table: object = ones(2)

    def maps(self, job: Job) -> Tensor:
        return job.prior.map.expand(len(job.images), -1, -1).clone()

@dataclass(frozen=True)
class Wants(Method):
    """One that has to be told something."""
    power: float
    name: ClassVar[str] = "wants-of-the-tests"

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.gradients()) ** self.power

squared = TimesInput(power=2.0)
longer = agop.methods.IntegratedGradients(steps=3)
cubed = Wants(3.0)
number = 3
def function():
    return squared
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files with methods, good and bad, a network's weights, pictures with masks, and a prior."""
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


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


GIVEN = ("--weights", "w.safetensors", "--prior", "prior.safetensors")
NAMES = ("mine_of_the_tests:TimesInput", "mine_of_the_tests:squared", "package_of_mine.inner:WithPrior")
CHOSEN = [word for name in NAMES for word in ("--method", name)]


def test_a_class_or_an_instance_with_its_options_is_a_method(inside):
    model, images = CNN8by8(), torch.randn(4, 1, 8, 8)
    plain, squared = (agop.explain(model, images, name) for name in NAMES[:2])
    gradients = agop.input_gradients(model, images).values
    torch.testing.assert_close(plain.as_subclass(torch.Tensor), (gradients * images).abs().sum(1))
    torch.testing.assert_close(squared.as_subclass(torch.Tensor), plain.as_subclass(torch.Tensor) ** 2)
    cubed = agop.explain(model, images, "mine_of_the_tests:cubed").as_subclass(torch.Tensor)
    torch.testing.assert_close(cubed, gradients.abs().sum(1) ** 3)
    longer = agop.explain(model, images, "mine_of_the_tests:longer")
    torch.testing.assert_close(longer, agop.explain(model, images, methods.IntegratedGradients(steps=3)))
    masks = torch.rand(4, 8, 8) < 0.4
    scored = agop.evaluate(model, images, masks, [NAMES[0], NAMES[1], "vanilla"], metrics=["energy"])
    assert list(scored.scores) == [NAMES[0], NAMES[1], "vanilla"]
    assert "TimesInput" in repr(scored)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine_of_the_tests:Nothing", "known: mine_of_the_tests:TimesInput, mine_of_the_tests:WithPrior"),
        ("mine_of_the_tests:TimeInput", "did you mean 'mine_of_the_tests:TimesInput'"),
        ("mine_of_the_tests:number", "is a int: .* agop.methods.Method"),
        ("mine_of_the_tests:function", "is a function: .* agop.methods.Method"),
        ("mine_of_the_tests:Method", "Method has no maps"),
        ("mine_of_the_tests:Wants", r"needs options .*power.*: name an object"),
        ("mine_of_the_tests.py:TimesInput", "leave out the .py"),
        ("nowhere_at_all:TimesInput", "there is no module nowhere_at_all here"),
        ("method_raises:Any", "method_raises cannot be imported: ZeroDivisionError: division by zero"),
        ("method_taken:TimesInput", "there is already a method named 'vanilla'"),
        ("mine_of_the_tests:", "no method is named"),
        (":TimesInput", "no method is named"),
    ],
)
def test_what_names_no_method_is_told_plainly(inside, name, message):
    with pytest.raises(InputError, match=message):
        agop.explain(CNN8by8(), torch.randn(2, 1, 8, 8), name)


def test_an_unknown_name_hints_at_files_of_ones_own():
    with pytest.raises(UnknownNameError, match=r"package\.module:CLASS"):
        methods.get("gradient-times-nothing")


def test_explain_from_the_command_line(folder):
    done = run("explain", "agop.networks:CNN8by8", "pictures", *GIVEN, *CHOSEN, "--out", "out", folder=folder)
    assert done.returncode == 0, done.stderr
    maps = load_file(folder / "out" / "maps.safetensors")
    assert set(maps) == set(NAMES)
    torch.testing.assert_close(maps[NAMES[1]], maps[NAMES[0]] ** 2)
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    assert [manifest["methods"][name].get("power") for name in NAMES] == [1.0, 2.0, None]


def test_evaluate_from_the_command_line(folder):
    done = run(
        "evaluate", "agop.networks:CNN8by8", "pictures", "masks", *GIVEN, *CHOSEN, "--metric", "energy",
        "--out", "scored", folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "scored" / "rows.jsonl").read_text().splitlines()]
    assert {row["method"] for row in rows} == set(NAMES)
    assert run("report", "scored", folder=folder).returncode == 0
    about = json.loads((folder / "scored" / "about.json").read_text())
    assert about["methods"][NAMES[0]] == "The gradient times the image."


@pytest.mark.parametrize("command", ["explain", "evaluate", "bench"])
def test_a_bad_name_is_one_line_before_the_work(folder, command):
    rest = {
        "explain": ("agop.networks:CNN8by8", "pictures", *GIVEN),
        "evaluate": ("agop.networks:CNN8by8", "pictures", "masks", *GIVEN),
        "bench": ("xai-tris", "--quick"),
    }[command]
    for name, message in (("method_raises:A", "cannot be imported"), ("mine_of_the_tests:Wants", "needs options")):
        done = run(command, *rest, "--method", "vanilla", "--method", name, "--out", "bad", folder=folder)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (folder / "bad").exists()


BENCH = (
    "bench",
    "xai-tris",
    "--quick",
    "--scenario",
    "linear",
    "--seeds",
    "1",
    "--metric",
    "energy",
    "--method",
    "vanilla",
)


@pytest.mark.slow
def test_the_bench_scores_it_in_its_workers_and_goes_on_with_it(folder):
    done = run(*BENCH, *CHOSEN, "--jobs", "2", "--out", "run", folder=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "run" / "spec.json").read_text())["methods"] == ["vanilla", *NAMES]
    lines = (folder / "run" / "rows.jsonl").read_bytes()
    rows = [json.loads(line) for line in lines.splitlines()]
    assert {row["method"] for row in rows if row["metric"] == "energy"} == {"vanilla", *NAMES}
    shutil.rmtree(folder / "run" / "cells" / "linear-correlated-000")
    again = run(*BENCH, *CHOSEN, "--jobs", "2", "--out", "run", folder=folder)
    assert again.returncode == 0, again.stderr
    assert (folder / "run" / "rows.jsonl").read_bytes() == lines
    assert run("report", "run", folder=folder).returncode == 0


@pytest.mark.slow
def test_the_bench_does_not_go_on_with_another_method_under_the_same_name(folder, tmp_path):
    (tmp_path / "changing.py").write_text(MINE)
    arguments = (*BENCH, "--method", "changing:TimesInput", "--background", "uncorrelated", "--out", "run")
    assert run(*arguments, folder=tmp_path).returncode == 0
    (tmp_path / "changing.py").write_text(MINE.replace("power: float = 1.0", "power: float = 4.0"))
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "code" in done.stderr
    assert "--fresh" in done.stderr
    assert run(*arguments, "--fresh", folder=tmp_path).returncode == 0


@pytest.mark.slow
def test_the_ranks_of_torchrun_find_it(folder):
    before = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "agop")
    done = run_process(*BENCH, *CHOSEN, "--jobs", "1", "--out", "ranks", folder=folder, before=before)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "ranks" / "rows.jsonl").read_text().splitlines()]
    assert {row["method"] for row in rows if row["metric"] == "energy"} == {"vanilla", *NAMES}


def test_list_says_how_to_name_one():
    assert "package.module:CLASS" in run("list", folder=Path.cwd()).stdout
