"""The AGOP file: damaged content, and values that don't match each other, raise FileError."""

import json
import os
import random
from contextlib import suppress

import pytest
import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save

import agop
from agop.errors import FileError
from agop.pictures.preprocessing import Preprocessing
from tests import zoo
from tests.agop_files import flipped, metadata_of
from tests.state import same

NEW = ("patch_matrix", "class_patch_matrices", "sketch", "image_moments", "references")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An AGOP file with all kinds of content."""
    path = tmp_path_factory.mktemp("agop") / "prior.safetensors"
    model, images = zoo.build("plain"), zoo.images(20)
    prior = agop.fit(
        model, [(images, torch.arange(20) % 3)], only_correct=False, per_class=True, progress=False, rank=3,
        references=4,
    )  # fmt: skip
    prior.save(path, preprocessing=Preprocessing((12, 12), (0.5,), (0.25,)), classes=["cat", "dog", "cow"])
    return path


def test_each_flipped_bit_is_detected_or_harmless(saved, tmp_path):
    """Some bits of the whole file, and of the numbers, where none is harmless."""
    content, expected = saved.read_bytes(), agop.AGOP.load(saved)
    numbers = 8 * (8 + int.from_bytes(content[:8], "little"))
    draw = random.Random(0)
    path, accepted = tmp_path / "flipped.safetensors", []
    for bit in [*draw.sample(range(8 * len(content)), 200), *draw.sample(range(numbers, 8 * len(content)), 100)]:
        path.write_bytes(flipped(content, bit))
        try:
            prior = agop.AGOP.load(path)
        except FileError:
            continue
        accepted.append(bit)
        assert prior.provenance == expected.provenance
        assert all(
            same(getattr(prior, name), getattr(expected, name))
            for name in ("diagonal", "count", "class_diagonals", "class_counts", *NEW)
        )
    assert all(bit < numbers for bit in accepted)


def rewritten(saved, path, change, tensors=None):
    """The file with changed metadata and tensors, without a checksum, like a file of an earlier version."""
    content = saved.read_bytes()
    values = metadata_of(content)
    values.pop("checksum")
    change(values)
    contents = {name: tensor for name, tensor in (tensors_of(content) | (tensors or {})).items() if tensor is not None}
    path.write_bytes(save(contents, {"agop": json.dumps(values)}))
    return path


def test_class_names_of_folders_that_are_not_utf_8_load(saved, tmp_path):
    names = [os.fsdecode(b"caf\xe9"), "dog", "cow"]
    agop.AGOP.load(saved).save(tmp_path / "named.safetensors", classes=names)
    assert agop.AGOP.load(tmp_path / "named.safetensors").class_names == tuple(names)


def test_optional_tensors_are_those_that_were_saved(saved, tmp_path):
    prior = agop.AGOP.load(saved)
    assert (prior.layer, prior.sketch.shape, prior.class_patch_matrices.shape) == ("body.0", (3, 3, 12, 12), (3, 6, 6))
    assert (prior.image_moments.shape, prior.references.shape) == ((2, 3, 12, 12), (4, 3, 12, 12))
    prior.save(tmp_path / "again.safetensors")
    again = agop.AGOP.load(tmp_path / "again.safetensors")
    assert all(same(getattr(prior, name), getattr(again, name)) for name in NEW)


def test_file_of_the_first_format_loads_without_them(saved, tmp_path):
    def first_format(values):
        values.update(format=1)
        del values["layer"]
        for option in ("rank", "output", "references"):
            del values["options"][option]

    path = rewritten(saved, tmp_path / "first.safetensors", first_format, dict.fromkeys(NEW))
    prior, expected = agop.AGOP.load(path), agop.AGOP.load(saved)
    assert torch.equal(prior.diagonal, expected.diagonal)
    assert [getattr(prior, name) for name in (*NEW, "layer")] == [None] * 6
    assert prior.provenance.output == "predicted"


@pytest.mark.parametrize(
    "tensors",
    [
        {"patch_matrix": torch.rand(6, 5).double()},
        {"patch_matrix": torch.rand(6, 6).double()},
        {"patch_matrix": -torch.eye(6).double()},
        {"patch_matrix": torch.full((6, 6), torch.inf).double()},
        {"patch_matrix": torch.eye(6)},
        {"patch_matrix": None},
        {"class_patch_matrices": torch.eye(6).double().expand(2, 6, 6).contiguous()},
        {"class_patch_matrices": torch.rand(3, 6, 6).double()},
        {"sketch": torch.rand(3, 3, 12, 13)},
        {"sketch": torch.full((3, 3, 12, 12), torch.nan)},
        {"image_moments": torch.rand(2, 3, 12, 13)},
        {"image_moments": torch.rand(3, 3, 12, 12)},
        {"image_moments": torch.rand(2, 3, 12, 12).double()},
        {"image_moments": -torch.ones(2, 3, 12, 12)},
        {"image_moments": torch.full((2, 3, 12, 12), torch.inf)},
        {"references": torch.rand(4, 3, 12, 13)},
        {"references": torch.rand(3, 12, 12)},
        {"references": torch.rand(21, 3, 12, 12)},
        {"references": torch.zeros(0, 3, 12, 12)},
        {"references": torch.full((4, 3, 12, 12), torch.nan)},
        {"references": torch.ones(4, 3, 12, 12, dtype=torch.uint8)},
    ],
)
def test_damaged_optional_tensors_raise(saved, tmp_path, tensors):
    path = rewritten(saved, tmp_path / "damaged.safetensors", lambda values: None, tensors)
    with pytest.raises(FileError, match="tensors don't match"):
        agop.AGOP.load(path)


def test_file_without_a_checksum_loads(saved, tmp_path):
    prior = agop.AGOP.load(rewritten(saved, tmp_path / "old.safetensors", lambda values: None))
    assert prior.provenance == agop.AGOP.load(saved).provenance


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": 3}, "has format 3, this agop reads format 2: upgrade"),
        ({"layer": None}, "don't match"),
        ({"format": 0}, "format is 0"),
        ({"format": "1"}, "provenance.format is '1': expected int"),
        ({"format": 1.0}, "provenance.format is 1.0: expected int"),
        ({"format": True}, "provenance.format is True: expected int"),
        ({"kind": "hand"}, "provenance.kind is 'hand': expected"),
        ({"input_shape": [3, 12, 13]}, "don't match"),
        ({"classes": 4}, "don't match"),
        ({"count": 21}, "don't match"),
        ({"count": 10**30}, "provenance.count has 31 digits"),
        ({"count": -20}, "provenance.count is -20: expected 0 or more"),
        ({"skipped": -1}, "provenance.skipped is -1"),
        ({"correct": 30, "labelled": 20}, "provenance.correct is 30 of 20 labelled"),
        ({"data": {"classes": ["a", "b", "\ud800"]}}, r"data.classes is '\\ud800': expected text"),
        ({"rank": 2, "ranks": 2}, "provenance.rank is 2 of 2"),
        ({"options": {"nan": [1]}}, r"provenance.options.nan is \[1\]"),
        ({"options": {"nan": {}}}, "provenance.options.nan is {}"),
        ({"data": {"preprocessing": {"size": [12, 13]}}}, r"size \[12, 13\], its diagonal is \(3, 12, 12\)"),
        ({"data": {"preprocessing": {"size": [16000, 16000]}}}, r"size \[16000, 16000\]"),
        ({"data": {"preprocessing": {"size": 12}}}, "preprocessing.size is 12: expected list"),
        ({"data": {"preprocessing": {"mean": 0.5}}}, "preprocessing.mean is 0.5: expected list"),
        ({"data": {"preprocessing": {"std": ["1"]}}}, "preprocessing.std is '1': expected float"),
        ({"data": {"preprocessing": {"mean": None}}}, "preprocessing.mean has no value"),
        ({"data": {"preprocessing": {"mean": [None]}}}, "preprocessing.mean is None: expected float"),
        ({"data": {"preprocessing": {"gray": True}}}, "gray True"),
        ({"data": {"preprocessing": {"resize": 16000}}}, "resize 16000 for images of"),
        ({"data": {"preprocessing": {"resize": [16000, 12]}}}, r"resize \[16000, 12\]"),
        ({"data": {"preprocessing": {"mean": [{}]}}}, "preprocessing.mean is {}"),
        ({"data": {"preprocessing": {"std": 10**400}}}, "preprocessing.std"),
    ],
)
def test_values_that_do_not_match_the_tensors_raise(saved, tmp_path, values, message):
    path = rewritten(saved, tmp_path / "wrong.safetensors", lambda metadata: metadata.update(values))
    with pytest.raises(FileError, match=message):
        agop.AGOP.load(path)


@pytest.mark.parametrize("text", ['{"format": 1, "count": NaN}', '{"format": 1, "count": Infinity}'])
def test_constants_that_are_not_json_raise(saved, tmp_path, text):
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(save(tensors_of(saved.read_bytes()), {"agop": text}))
    with pytest.raises(FileError, match="isn't JSON"):
        agop.AGOP.load(path)


@pytest.mark.parametrize("depth", [100, 300, 500, 900, 980, 990, 2000])
def test_deeply_nested_metadata_loads_or_raises_file_error(saved, tmp_path, depth):
    """Unknown keys are ignored, but Python's JSON reader has a limit."""
    content, path = saved.read_bytes(), tmp_path / "deep.safetensors"
    values = metadata_of(content)
    values.pop("checksum")
    text = f'{json.dumps(values)[:-1]}, "later": {"[" * depth}{"]" * depth}}}'
    path.write_bytes(save(tensors_of(content), {"agop": text}))
    with suppress(FileError):
        assert agop.AGOP.load(path).provenance == agop.AGOP.load(saved).provenance


@pytest.mark.parametrize(
    "tensors",
    [
        {"class_diagonals": torch.full((3, 3, 12, 12), -1.0)},
        {"class_diagonals": torch.full((3, 3, 12, 12), torch.inf)},
        {"class_diagonals": torch.ones(3, 3, 12, 12).long()},
        {"class_diagonals": torch.ones(2, 3, 12, 12), "class_counts": torch.tensor([10, 10])},
        {"class_counts": torch.tensor([2**62, 2**62, 20])},
        {"diagonal": torch.full((3, 12, 12), torch.inf)},
    ],
)
def test_tensors_that_are_not_means_of_squares_raise(saved, tmp_path, tensors):
    with pytest.raises(FileError, match="its tensors don't match"):
        agop.AGOP.load(rewritten(saved, tmp_path / "wrong.safetensors", lambda values: None, tensors))
