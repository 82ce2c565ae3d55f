import io
import os
import pickle
import re
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save, save_file

import agop
from agop import load_model
from agop.bench import CNN8by8, ResNet18
from agop.errors import AGOPError, AGOPWarning, FileError, MissingExtraError, ModelError
from tests import zoo
from tests.state import same


def exported_model():
    return zoo.build("batch norm and dropout").eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The file of an exported program that takes any number of images."""
    path = tmp_path_factory.mktemp("exported") / "m.pt2"
    shapes = ({0: torch.export.Dim("n", min=1, max=512)},)
    torch.export.save(torch.export.export(exported_model(), (zoo.images(2),), dynamic_shapes=shapes), path)
    return path


def test_functions_and_modules_load_also_from_the_current_folder(tmp_path, monkeypatch):
    assert isinstance(load_model("agop.bench:CNN8by8"), CNN8by8)
    (tmp_path / "mine_for_this_test.py").write_text(
        "from agop.bench import CNN8by8\nclass Models:\n    small = CNN8by8()\ndef number():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert isinstance(load_model("mine_for_this_test:Models.small"), CNN8by8)
    with pytest.raises(ModelError, match="returned a int"):
        load_model("mine_for_this_test:number")


@pytest.mark.parametrize(
    ("spec", "message"),
    [("resnet18", "does not name a model.*torchvision:NAME"),
     ("agop.bench:CNN8", "did you mean 'agop.bench:CNN8by8'"),
     ("no_such_package:f", "no module named no_such_package"), (":f", "does not name"), ("hf:", "does not name"),
     ("nothing.pt2", "No such file")],
)  # fmt: skip
def test_invalid_specs_raise(spec, message):
    with pytest.raises(AGOPError, match=message):
        load_model(spec)


# Before the names of a LightningModule's part, of DataParallel, of torch.compile.
PREFIXES = ["model.", "net.", "module.", "_orig_mod.", "model._orig_mod.", "anything.deep."]


def test_weights_load_from_every_supported_file_without_one_prefix_before_all_names(tmp_path):
    state = CNN8by8().state_dict()
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "wrapped.pt")
    save_file(state, tmp_path / "w.safetensors")
    save_file(state, tmp_path / "safetensors.bin")  # detected by its content
    for prefix in ("", *PREFIXES):
        torch.save({f"{prefix}{name}": value for name, value in state.items()}, tmp_path / f"{prefix}pt")
    for file in tmp_path.iterdir():
        assert same(load_model("agop.bench:CNN8by8", file).state_dict(), state), file


def test_tensors_outside_the_prefix_are_ignored_with_a_warning(tmp_path):
    state = {f"model.{name}": value for name, value in CNN8by8().state_dict().items()}
    torch.save(state | {"loss.weight": torch.ones(2)}, tmp_path / "w.pt")
    with pytest.warns(AGOPWarning, match=r"w\.pt: ignored loss\.weight, which isn't below model\."):
        load_model("agop.bench:CNN8by8", tmp_path / "w.pt")


def test_prefix_that_does_not_match_all_names_or_is_ambiguous_raises(tmp_path):
    state = CNN8by8().state_dict()
    first, *others = state
    torch.save({f"net.{name}": state[name] for name in others}, tmp_path / "lacks.pt")
    torch.save({f"{part}.{name}": state[name] for part in ("model", "ema") for name in state}, tmp_path / "two.pt")
    for file, message in (("lacks.pt", f"it lacks {first}$"), ("two.pt", r"below each of ema\., model\.: save one")):
        with pytest.raises(ModelError, match=message):
            load_model("agop.bench:CNN8by8", tmp_path / file)


class Runs:
    """A pickle that runs code when it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_invalid_weight_files_raise_and_run_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(Runs(), "evil.pt")
    torch.save({"epoch": 3}, "number.pt")
    torch.save(ResNet18(2).state_dict(), "other.pt")
    torch.save({name: value[:1] for name, value in CNN8by8().state_dict().items()}, "shapes.pt")
    Path("text.safetensors").write_text("hello")
    for file, error, message in [
        ("evil.pt", FileError, "could run code"), ("number.pt", FileError, "does not contain a state dict"),
        ("other.pt", ModelError, "does not match the model.*it lacks|--num-classes"),
        ("shapes.pt", ModelError, r"does not match the model: size mismatch.*Build the network"),
        ("text.safetensors", FileError, "is not a safetensors file, or is truncated"),
        ("nothing.pt", FileError, "nothing.pt can't be read: No such file"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message) as raised:
            load_model("agop.bench:CNN8by8", file)
        assert "\n" not in str(raised.value)
    assert not Path("ran").exists()


def invalid_weights() -> dict[str, bytes]:
    """Files that aren't weights, by name."""
    plain, old, picture = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(CNN8by8().state_dict(), plain)
    torch.save(CNN8by8().state_dict(), old, _use_new_zipfile_serialization=False)
    Image.new("RGB", (9, 9)).save(picture, format="PNG")
    return {
        "empty.pth": b"", "empty.safetensors": b"", "text.pth": b"epoch 3\nloss 0.2\n", "letters.pth": b"abc",
        "brackets.pth": b"]]]]", "picture.pth": picture.getvalue(), "page.pth": b"<!DOCTYPE html><html></html>",
        "cut.pth": plain.getvalue()[:2000], "half.pth": plain.getvalue()[: len(plain.getvalue()) // 2],
        "cut_old.pth": old.getvalue()[:900], "cut.safetensors": save(CNN8by8().state_dict())[:900], "few.pth": b"PK",
        "torch.safetensors": plain.getvalue(), "zip.pth": b"PK\x05\x06" + bytes(18), "eighty.pth": b"\x80\x02",
    }  # fmt: skip


INVALID = invalid_weights()


@pytest.mark.parametrize("name", INVALID)
def test_invalid_weights_raise_with_one_sentence_and_the_fix(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(INVALID[name])
    with pytest.raises(FileError) as raised:
        load_model("agop.bench:CNN8by8", path)
    message = str(raised.value)
    assert message.startswith(f"{path} ")
    assert re.search(r"save weights with torch\.save\(model\.state_dict\(\), .*safetensors", message), message
    assert not re.search(r"Errno|IndexError|pop from|run code|\n", message), message
    assert ("is empty" in message) == name.startswith("empty")


@pytest.mark.parametrize(
    ("spec", "name", "install", "error"),
    [("timm:resnet18", "timm", r"'agop\[timm\]'", MissingExtraError),
     ("hf:name", "transformers", r"'agop\[transformers\]'", MissingExtraError),
     ("torchvision:resnet18", "torchvision", "torchvision", ModelError)],
)  # fmt: skip
def test_missing_libraries_raise_with_the_command_that_installs_them(spec, name, install, error, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    message = rf"^a {name} model needs {name}: pip install {install} torch==\d+\.\d+\.\d+$"
    with pytest.raises(error, match=message):
        load_model(spec)


def test_a_torchvision_for_another_torch_raises_with_the_fix(tmp_path, monkeypatch):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    message = r"torchvision is installed but can't be imported \(RuntimeError: .*torchvision torch==\d+\.\d+\.\d+"
    with pytest.raises(ModelError, match=message):
        load_model("torchvision:resnet18")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_exported_program_gives_the_same_maps_unless_its_batch_is_fixed(exported, tmp_path):
    model, images = exported_model(), zoo.images()
    loaded = load_model(str(exported))
    torch.testing.assert_close(agop.explain(loaded, images, "vanilla"), agop.explain(model, images, "vanilla"))
    assert agop.fit(loaded, [images], only_correct=False, progress=False).count == 5
    torch.export.save(torch.export.export(model, (images[:2],)), tmp_path / "fixed.pt2")
    with pytest.raises(ModelError, match=r"\(5, 3, 12, 12\).*size\(\)\[0\] == 2"):
        agop.explain(load_model(str(tmp_path / "fixed.pt2")), images, "vanilla")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:Duplicate name")
@pytest.mark.parametrize("where", ["inputs", "weights", "old", "legacy", "case", "twice", "native"])
def test_exported_program_with_a_pickle_raises_and_runs_no_code(where, exported, tmp_path, monkeypatch):
    """torch.export.load would unpickle it."""
    monkeypatch.chdir(tmp_path)
    saved, pickled, inputs = io.BytesIO(), pickle.dumps(Runs()), "data/sample_inputs/model.pt"
    torch.save((Runs(),), saved)
    added = {
        "legacy": "data/weights/model.pt", "native": "data/aotinductor/model/model.so", "twice": inputs,
        "case": inputs.replace("sample", "Sample"),
    }  # fmt: skip
    with zipfile.ZipFile(exported) as good, zipfile.ZipFile("evil.pt2", "w") as evil:
        if where in added:
            evil.writestr(f"{good.namelist()[0].split('/')[0]}/{added[where]}", pickled)
        for name in good.namelist():
            content = good.read(name)
            if where == "inputs" and name.endswith(inputs):
                content = saved.getvalue()
            if where == "weights" and name.endswith("weights_config.json"):
                content = content.replace(b'"use_pickle": false', b'"use_pickle": true', 1)
            if where == "weights" and name.endswith("/weight_0"):
                content = pickled
            if not (where == "old" and name.endswith("_config.json")):
                evil.writestr(name, content)
    with pytest.raises(ModelError, match=r"pickle"):
        load_model("evil.pt2")
    assert not Path("ran").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_incomplete_exported_program_raises(exported, tmp_path):
    with zipfile.ZipFile(exported) as whole, zipfile.ZipFile(tmp_path / "cut.pt2", "w") as cut:
        for name in whole.namelist():
            if not name.endswith("/weight_1"):
                cut.writestr(name, whole.read(name))
    with pytest.raises(ModelError, match=r"cut\.pt2 can't be read as an exported program: "):
        load_model(str(tmp_path / "cut.pt2"))


def test_hugging_face_folder_loads(tmp_path):
    pytest.importorskip("transformers")
    from tests.integrations.hugging_face import vit

    model, images = vit().eval(), zoo.images(2, shape=(3, 16, 16))
    model.save_pretrained(tmp_path)
    for loaded in (load_model(f"hf:{tmp_path}"), load_model(f"hf:{tmp_path}", tmp_path / "model.safetensors")):
        torch.testing.assert_close(agop.explain(loaded, images, "vanilla"), agop.explain(model, images, "vanilla"))
    save_file({"vit.nothing": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="it lacks"):
        load_model(f"hf:{tmp_path}", tmp_path / "other.safetensors")
