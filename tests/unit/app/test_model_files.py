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
        ({"weights": Path("weights.pth")}, FileError, "isn't a .safetensors file, the only kind it reads"),
        ({"weights": Path("gone.safetensors")}, FileError, "weights gone.safetensors doesn't exist"),
        ({"prior": Path("prior.pt")}, FileError, "isn't a .safetensors file, the only kind it reads"),
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
def test_pickle_is_never_read(tmp_path, monkeypatch, name, option):
    monkeypatch.chdir(tmp_path)
    torch.save({"fc.weight": Bomb()}, name)
    with pytest.raises(AGOPError):
        load_session(**example.ARGUMENTS | {option: tmp_path / name})
    assert not (tmp_path / "exploded").exists()


def test_hugging_face_folder_with_pickled_weights_raises(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"has no model\.safetensors"):
        load_session(f"hf:{tmp_path}")


def test_prior_of_other_weights_warns(tmp_path):
    torch.manual_seed(0)
    save_file(agop.networks.CNN8by8().state_dict(), tmp_path / "w.safetensors")
    arguments = example.ARGUMENTS | {"model": "agop.networks:CNN8by8"}
    with pytest.warns(AGOPWarning, match="other weights"):
        load_session(**arguments | {"weights": tmp_path / "w.safetensors"})
    session = load_session(**arguments | {"weights": example.WEIGHTS})
    assert fingerprint(session.explainer.model) == fingerprint(example.network())
