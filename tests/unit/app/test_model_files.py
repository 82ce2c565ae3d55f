"""Which models the app loads from its command line."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import agop
from agop.app import example
from agop.cli.app import load_session
from agop.errors import AGOPError, AGOPWarning, FileError, InputError, ModelError
from agop.model.fingerprint import fingerprint


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "nowhere:net"}, ModelError, "nowhere"),
        ({"model": "torchvision:resnet18"}, ModelError, "doesn't download weights for torchvision:resnet18"),
        ({"model": "timm:resnet18"}, ModelError, "doesn't download weights"),
        ({"model": "hf:microsoft/resnet-50"}, ModelError, "isn't a local folder, and the app doesn't download"),
        ({"weights": Path("gone.pth")}, FileError, "gone.pth can't be read: No such file"),
        ({"prior": Path("gone.safetensors")}, FileError, "could not read gone.safetensors"),
        ({"prior": example.WEIGHTS}, FileError, "not an AGOP file"),
        ({"size": "16"}, AGOPError, "the prior is for images of shape"),
        ({"size": "large"}, InputError, "HEIGHTxWIDTH"),
        ({"gray": False, "prior": None}, ModelError, "channels"),
    ],
)
def test_unusable_arguments_raise(change, error, message):
    with pytest.raises(error, match=message):
        load_session(**example.ARGUMENTS | change)


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("name", ["weights.pth", "weights.pt", "weights.bin", "weights.safetensors"])
@pytest.mark.parametrize("option", ["weights", "prior"])
def test_code_in_a_pickle_never_runs(tmp_path, monkeypatch, name, option):
    monkeypatch.chdir(tmp_path)
    torch.save({"fc.weight": Bomb()}, name)
    with pytest.raises(AGOPError):
        load_session(**example.ARGUMENTS | {option: tmp_path / name})
    assert not (tmp_path / "exploded").exists()


def test_code_in_a_hugging_face_folder_never_runs(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1]).save_pretrained(tmp_path)
    torch.save({"fc.weight": Bomb()}, "pytorch_model.bin")
    with pytest.raises(ModelError, match="Weights only load failed"):
        load_session(f"hf:{tmp_path}", size="32", mean="0", std="1")
    assert not (tmp_path / "exploded").exists()


def test_state_dict_that_agop_explain_reads_is_read(tmp_path):
    weights = tmp_path / "w.pth"
    torch.save({"state_dict": {f"model.{n}": v for n, v in example.network().state_dict().items()}}, weights)
    session = load_session(**example.ARGUMENTS | {"model": "agop.networks:CNN8by8", "weights": weights})
    assert fingerprint(session.explainer.model) == fingerprint(example.network())


def test_prior_of_other_weights_warns(tmp_path):
    torch.manual_seed(0)
    save_file(agop.networks.CNN8by8().state_dict(), tmp_path / "w.safetensors")
    arguments = example.ARGUMENTS | {"model": "agop.networks:CNN8by8"}
    with pytest.warns(AGOPWarning, match="other weights"):
        load_session(**arguments | {"weights": tmp_path / "w.safetensors"})
    session = load_session(**arguments | {"weights": example.WEIGHTS})
    assert fingerprint(session.explainer.model) == fingerprint(example.network())
