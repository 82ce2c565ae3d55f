"""Provenance: typed in memory, JSON in the file."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

import agop
from agop.errors import FileError
from agop.statistic.provenance import DataProvenance, ImagesDigest, MergedPart, Provenance

FULL = Provenance(
    kind="one checkpoint", model={"architecture": "a", "weights": "b"}, input_shape=(1, 2, 2), classes=2, count=7,
    skipped=1, options={"only_correct": False, "nan": "raise"}, versions={"agop": "0.1.0"}, steps=3, rank=0, ranks=2,
    parameters="c", data=DataProvenance(("x", "y"), {"size": [2, 2]}, ImagesDigest(3, "ab", ("aa",))),
    merged=(MergedPart("a.safetensors", 3, "d", pictures=ImagesDigest(3, "ab", ("aa",))),),
)  # fmt: skip

# The metadata that agop 0.1.0 wrote when provenance was a plain dict: fit, merge, a snapshot and an AGOP made by hand.
DIGEST = '{"count": 3, "names": "ab", "some": ["aa"]}'
FIT = (
    '{"format": 1, "kind": "one checkpoint", "model": {"architecture": "c8cf2186b874e6cc", "weights": '
    '"3faa66b9f3aa6f45"}, "input_shape": [1, 2, 2], "classes": 2, "count": 3, "skipped": 0, "options": {'
    '"only_correct": false, "per_class": false, "nan": "raise"}, "versions": {"agop": "0.1.0", "torch": '
    '"2.13.0+cpu", "python": "3.11.7"}, "data": {"classes": ["x", "y"], "preprocessing": {"size": [2, 2], "mean": '
    '[0.5], "std": [1.0], "gray": true}, "pictures": ' + DIGEST + "}}"
)
MERGED = FIT.replace(f', "pictures": {DIGEST}', "").removesuffix("}") + (
    ', "merged": [{"name": "a.safetensors", "count": 1, "digest": "3a870fdb7506e211", "pictures": ' + DIGEST + "}, "
    '{"name": "b.safetensors", "count": 2, "digest": "459932005eb56b54", "rank": 0, "ranks": 2}]}'
)
SNAPSHOT = (
    '{"format": 1, "kind": "training-accumulated", "model": {"architecture": "c8cf2186b874e6cc", "weights": '
    '"3faa66b9f3aa6f45"}, "input_shape": [1, 2, 2], "classes": 2, "count": 3, "skipped": 0, "options": {'
    '"only_correct": false, "per_class": false, "nan": "raise", "every": 1}, "versions": {"agop": "0.1.0", "torch": '
    '"2.13.0+cpu", "python": "3.11.7"}, "steps": 1, "rank": 0, "ranks": 1, "parameters": "3faa66b9f3aa6f45"}'
)
BY_HAND = '{"format": 1, "count": 3}'


def load(tmp_path, metadata: str) -> agop.AGOP:
    save_file({"diagonal": torch.ones(1, 2, 2)}, tmp_path / "prior.safetensors", {"agop": metadata})
    return agop.AGOP.load(tmp_path / "prior.safetensors")


def test_from_dict_inverts_to_dict_which_has_lists_where_json_has():
    assert Provenance.from_dict(FULL.to_dict()) == FULL
    assert Provenance.from_dict(Provenance().to_dict()) == Provenance()
    assert Provenance().to_dict() == {"format": 2, "skipped": 0}
    values = replace(FULL, data=DataProvenance(preprocessing={"size": (2, 2)})).to_dict()
    assert values["data"] == {"preprocessing": {"size": [2, 2]}}
    assert values["input_shape"] == [1, 2, 2]


@pytest.mark.parametrize("metadata", [FIT, MERGED, SNAPSHOT, BY_HAND])
def test_files_of_older_versions_load(metadata, tmp_path):
    prior = load(tmp_path, metadata)
    assert prior.count == prior.provenance.count == 3
    prior.save(tmp_path / "again.safetensors")
    assert agop.AGOP.load(tmp_path / "again.safetensors").provenance == prior.provenance


def test_values_of_older_files_are_read_by_attribute(tmp_path):
    provenance = load(tmp_path, FIT).provenance
    assert provenance.kind == "one checkpoint"
    assert provenance.model == {"architecture": "c8cf2186b874e6cc", "weights": "3faa66b9f3aa6f45"}
    assert provenance.options["nan"] == "raise"
    assert provenance.data.classes == load(tmp_path, FIT).class_names == ("x", "y")
    assert provenance.data.preprocessing == {"size": [2, 2], "mean": [0.5], "std": [1.0], "gray": True}
    assert provenance.data.pictures == ImagesDigest(3, "ab", ("aa",))
    assert [(part.name, part.rank) for part in load(tmp_path, MERGED).provenance.merged] == [
        ("a.safetensors", None), ("b.safetensors", 0),
    ]  # fmt: skip
    snapshot = load(tmp_path, SNAPSHOT).provenance
    assert (snapshot.steps, snapshot.rank, snapshot.ranks, snapshot.parameters) == (1, 0, 1, "3faa66b9f3aa6f45")


def test_unknown_keys_are_ignored(tmp_path):
    metadata = '{"format": 1, "count": 3, "later": [1], "data": {"classes": ["x"], "colour": "red"}}'
    assert load(tmp_path, metadata).provenance == Provenance(count=3, data=DataProvenance(("x",)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('"classes": "two"', "provenance.classes is 'two': expected int"),
        ('"count": true', "provenance.count is True: expected int"),
        ('"model": {}', "provenance.model is {}: expected keys architecture and weights"),
        ('"model": {"architecture": 1, "weights": ""}', "provenance.model.architecture is 1: expected str"),
        ('"model": "resnet"', "provenance.model is 'resnet': expected dict"),
        ('"input_shape": [1, "2"]', "provenance.input_shape is '2': expected int"),
        ('"data": {"classes": "cat"}', "provenance.data.classes is 'cat': expected list"),
        ('"data": {"pictures": {"count": 3}}', "provenance.data.pictures lacks names"),
        ('"merged": [{"name": "a"}]', "provenance.merged lacks count, digest"),
    ],
)
def test_malformed_provenance_raises_file_error_with_the_field(values, message, tmp_path):
    with pytest.raises(FileError) as error:
        load(tmp_path, f'{{"format": 1, "count": 3, {values}}}')
    assert str(error.value) == f"{tmp_path}/prior.safetensors is a corrupt AGOP file ({message}): make it again"
