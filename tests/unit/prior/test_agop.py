"""The AGOP and its file: what is saved is loaded, and damaged files raise FileError."""

import copy
import json
import os
import pickle
import random
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save

import agop
from agop.errors import AGOPWarning, FileError, InputError
from tests import zoo
from tests.agop_files import flipped, metadata_of, with_checksum
from tests.state import same

TENSORS = {
    "diagonal", "class_diagonals", "class_counts", "patch_matrix", "class_patch_matrices", "sketch", "image_moments",
}  # fmt: skip


def fitted(per_class=False, seed=0, **options) -> agop.AGOP:
    model, images = zoo.build("plain", seed), zoo.images(20)
    return agop.fit(model, [(images, torch.arange(20) % 3)], False, per_class, progress=False, **options)


def assert_equal(a, b):
    assert a.provenance == b.provenance
    assert all(same(getattr(a, name), getattr(b, name)) for name in (*TENSORS, "count"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An AGOP file with all kinds of content."""
    path = tmp_path_factory.mktemp("agop") / "prior.safetensors"
    preprocessing = agop.Preprocessing((12, 12), (0.5,), (0.25,))
    fitted(per_class=True, rank=3).save(path, preprocessing=preprocessing, classes=["cat", "dog", "cow"])
    return path


@pytest.mark.parametrize("options", [{}, {"per_class": True, "rank": 3}])
def test_save_and_load_round_trip(options, tmp_path):
    prior, path = fitted(**options), tmp_path / "deeper" / "prior.safetensors"
    prior.save(path)
    fitted(**options).save(tmp_path / "equal")
    content = path.read_bytes()
    assert (tmp_path / "equal").read_bytes() == content
    assert_equal(agop.AGOP.load(path), prior)
    assert set(tensors_of(content)) == (TENSORS if options else {"diagonal", "patch_matrix", "image_moments"})
    assert metadata_of(content)["count"] == 20


def test_preprocessing_and_class_names_are_in_the_file(saved, tmp_path):
    prior = agop.AGOP.load(saved)
    assert prior.class_names == ("cat", "dog", "cow")
    assert agop.Preprocessing.from_dict(prior.provenance.data.preprocessing) == agop.Preprocessing(
        (12, 12), (0.5,), (0.25,)
    )
    prior.save(tmp_path / "again")
    assert_equal(agop.AGOP.load(tmp_path / "again"), prior)
    names = [os.fsdecode(b"caf\xe9"), "dog", "cow"]  # a folder's name may not be UTF-8
    prior.save(tmp_path / "named", classes=names)
    assert agop.AGOP.load(tmp_path / "named").class_names == tuple(names)
    with pytest.raises(InputError, match="shape 3×8×8, the AGOP has shape 3×12×12"):
        prior.save(tmp_path / "wrong", preprocessing=agop.Preprocessing((8, 8)))
    with pytest.raises(InputError, match="2 class names, the model has 3"):
        prior.save(tmp_path / "wrong", classes=["cat", "dog"])


def test_provenance_of_fit_and_hook():
    prior = fitted()
    provenance = prior.provenance
    assert provenance == replace(
        agop.AGOP(torch.ones(1, 1, 1), 1).provenance,
        kind="one checkpoint", model=provenance.model, input_shape=(3, 12, 12), classes=3, count=20,
        labelled=20, correct=provenance.correct, majority=provenance.majority, versions=provenance.versions,
        layer="body.0",
        options={"only_correct": False, "per_class": False, "nan": "raise", "rank": 0, "output": "logit"},
    )  # fmt: skip
    assert provenance.versions["torch"] == torch.__version__
    assert set(provenance.model) == {"architecture", "weights"}
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images())
    assert hook.finalize().provenance.kind == "training-accumulated"


def test_a_file_with_training_images_of_an_earlier_version_loads_without_them(saved, tmp_path):
    content = saved.read_bytes()
    values = metadata_of(content)
    values["options"]["references"] = 4
    values["data"]["pictures"] = {"count": 20, "names": "ab", "some": ["aa"]}
    values["merged"] = [{"name": "a", "count": 20, "digest": "3a870fdb7506e211", "pictures": {"count": 20}}]
    tensors = tensors_of(content) | {"references": torch.rand(4, 3, 12, 12)}
    (tmp_path / "old").write_bytes(with_checksum(tensors, values))
    prior, expected = agop.AGOP.load(tmp_path / "old"), agop.AGOP.load(saved)
    assert all(same(getattr(prior, name), getattr(expected, name)) for name in TENSORS)
    assert [part.name for part in prior.provenance.merged] == ["a"]
    prior.save(tmp_path / "new")
    assert "references" not in tensors_of((tmp_path / "new").read_bytes())


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
        assert_equal(prior, expected)
    assert all(bit < numbers for bit in accepted)


@pytest.mark.parametrize("change", [{"count": 21}, {"checksum": "0"}, {"checksum": None}])
def test_a_changed_value_or_checksum_raises(saved, tmp_path, change):
    content = saved.read_bytes()
    (tmp_path / "changed").write_bytes(save(tensors_of(content), {"agop": json.dumps(metadata_of(content) | change)}))
    with pytest.raises(FileError, match=r"changed is a corrupt AGOP file \(its content doesn't match its checksum\)"):
        agop.AGOP.load(tmp_path / "changed")


WHOLE = {"diagonal": torch.ones(1, 2, 2, dtype=torch.float64)}
FOREIGN = {
    "other tensors": save({"weight": torch.ones(3)}),
    "other metadata": save({"weight": torch.ones(3)}, {"format": "pt"}),
    "a list as metadata": save(WHOLE, {"agop": "[1]"}),
    "deeply nested metadata": save(WHOLE, {"agop": "[" * 100_000}),
    "a pickle": pickle.dumps({"diagonal": 1}),
    "text": b"hello " * 100,
}


@pytest.mark.parametrize("kind", [*FOREIGN, "torch.save", 0, 4, 8, 100, 0.5, 0.99])
def test_foreign_and_truncated_files_raise_with_their_name(saved, kind, tmp_path):
    path, whole = tmp_path / "foreign.safetensors", saved.read_bytes()
    if kind == "torch.save":
        torch.save(WHOLE, path)
    else:
        path.write_bytes(FOREIGN.get(kind) or whole[: int(kind * len(whole)) if isinstance(kind, float) else kind])
    with pytest.raises(FileError, match=r"foreign\.safetensors is not an AGOP file, or is truncated"):
        agop.AGOP.load(path)


def test_other_format_missing_file_and_unwritable_folder_raise(tmp_path):
    for file_format in (1, 3):
        (tmp_path / "other").write_bytes(save(WHOLE, {"agop": json.dumps({"format": file_format, "count": 3})}))
        with pytest.raises(FileError, match=f"format {file_format}, this agop reads format 2: upgrade"):
            agop.AGOP.load(tmp_path / "other")
    with pytest.raises(FileError, match="No such file"):
        agop.AGOP.load(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="could not write"):
        fitted().save(tmp_path / "file" / "prior.safetensors")


def test_save_follows_links_and_rejects_non_files(tmp_path):
    prior = fitted()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "prior")
    prior.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert agop.AGOP.load(tmp_path / "real" / "prior").count == 20
    prior.save(tmp_path / ("n" * 250))
    for path, message in ((tmp_path / "real", "not a file"), ("/dev/null", "not a file"), ("a\0b", "null")):
        with pytest.raises(FileError, match=message):
            prior.save(path)


def test_prior_of_another_model_warns():
    images = zoo.images()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agop.explain(zoo.build("plain"), images, "agop-weighted", fitted())
    with pytest.warns(AGOPWarning, match="other weights") as caught:
        agop.explain(zoo.build("plain", seed=1), images, "agop-weighted", fitted())
    assert caught[0].filename == __file__
    with pytest.warns(AGOPWarning, match="another model"):
        agop.explain(zoo.build("attention"), images, "agop-global", fitted())


def model_of(model):
    return agop.fit(model, [zoo.images()], False, progress=False).provenance.model


def test_fingerprint_changes_with_one_training_step_and_ignores_wrappers():
    model = zoo.build("batch norm and dropout").train()
    before = model_of(model)
    for same_model in (torch.nn.DataParallel(model), torch.compile(model), agop.prepare(model)):
        assert model_of(same_model) == before
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    model(zoo.images()).square().sum().backward()
    optimizer.step()
    assert model_of(model)["weights"] != before["weights"]
    assert model_of(model)["architecture"] == before["architecture"]


def test_copies_and_pickles_of_a_prior_hold_no_models():
    prior = fitted(per_class=True, rank=3)
    prior.check(zoo.build("plain"), zoo.images())
    for again in (copy.deepcopy(prior), pickle.loads(pickle.dumps(prior))):
        assert_equal(again, prior)
    assert "20 samples" in repr(prior)
