"""`agop fit` and `agop merge` replace AGOP files, and nothing else."""

import pytest
import torch
from safetensors.torch import save_file

import agop
from agop.networks import CNN8by8
from tests.command import error_of, run_checked
from tests.image_files import save_random

HOW = ("--weights", "w.safetensors", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5", "--all-samples")


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    model = CNN8by8()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    save_file({"mine": torch.zeros(2)}, tmp_path / "other.safetensors")
    save_random(tmp_path / "data", *(f"{kind}/{index}.png" for kind in ("cat", "dog") for index in range(6)))
    for name in ("a", "b"):
        prior = agop.fit(model, [torch.randn(8, 1, 8, 8)], only_correct=False, progress=False)
        prior.save(tmp_path / f"{name}.safetensors")
    (tmp_path / "notes.txt").write_text("notes")
    return tmp_path


FIT = ("fit", "agop.networks:CNN8by8", "data", *HOW)
MERGE = ("merge", "a.safetensors", "b.safetensors")


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize(
    ("command", "out", "message"),
    [
        (FIT, "w.safetensors", "is one of the inputs"),
        (FIT, "data/../w.safetensors", "is one of the inputs"),
        (FIT, "data/cat/0.png", "is in an input folder"),
        (MERGE, "b.safetensors", "is one of the inputs"),
    ],
)
def test_inputs_are_not_overwritten(folder, command, out, message, force):
    before = (folder / out).read_bytes()
    assert f"{out} {message}" in error_of(*command, "--out", out, *force, folder=folder)
    assert (folder / out).read_bytes() == before


@pytest.mark.parametrize("command", [FIT, MERGE], ids=["fit", "merge"])
def test_other_files_are_overwritten_only_by_force(folder, command):
    for out in ("notes.txt", "other.safetensors"):
        before = (folder / out).read_bytes()
        assert f"{out} already exists" in error_of(*command, "--out", out, folder=folder)
        assert (folder / out).read_bytes() == before
    run_checked(*command, "--out", "notes.txt", "--force", folder=folder)
    run_checked(*command, "--out", "notes.txt", folder=folder)
    assert agop.AGOP.load(folder / "notes.txt").count in (12, 16)
