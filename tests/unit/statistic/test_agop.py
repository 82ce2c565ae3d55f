import copy
import json
import pickle
import resource
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

import agop
from agop.errors import AGOPWarning, FileError
from agop.statistic.provenance import Provenance
from tests import zoo


def fitted(per_class=False, seed=0) -> agop.AGOP:
    model, images = zoo.build("plain", seed), zoo.images(20)
    return agop.fit(model, [(images, torch.arange(20) % 3)], only_correct=False, per_class=per_class, progress=False)


@pytest.mark.parametrize("per_class", [False, True])
def test_save_and_load_round_trip(per_class, tmp_path):
    prior = fitted(per_class)
    path = tmp_path / "deeper" / "prior.safetensors"
    prior.save(path)
    fitted(per_class).save(tmp_path / "equal")
    assert (tmp_path / "equal").read_bytes() == path.read_bytes()
    again = agop.AGOP.load(path)
    assert torch.equal(again.diagonal, prior.diagonal)
    assert again.count == prior.count == 20
    assert again.provenance == prior.provenance
    with safe_open(path, "pt") as file:
        by_class = {"class_diagonals", "class_counts", "class_patch_matrices"} if per_class else set()
        assert set(file.keys()) == {"diagonal", "patch_matrix", "image_moments", "mean_direction"} | by_class
        assert json.loads(file.metadata()["agop"])["count"] == 20
    if per_class:
        torch.testing.assert_close(again.class_diagonals, prior.class_diagonals, equal_nan=True)
        assert again.class_counts.tolist() == prior.class_counts.tolist()
    else:
        assert again.class_diagonals is None
        assert again.class_counts is None


def test_provenance_of_fit_and_hook():
    provenance = fitted().provenance
    assert provenance == Provenance(
        kind="one checkpoint", model=provenance.model, input_shape=(3, 12, 12), classes=3, count=20,
        labelled=20, correct=provenance.correct, versions=provenance.versions, layer="body.0",
        options={
            "only_correct": False, "per_class": False, "nan": "raise", "rank": 0, "output": "predicted",
            "references": 0,
        },
    )  # fmt: skip
    assert provenance.versions["torch"] == torch.__version__
    assert set(provenance.model) == {"architecture", "weights"}
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images())
    assert hook.finalize().provenance.kind == "training-accumulated"


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 0.5, 0.99])
def test_truncated_file_raises(keep, tmp_path):
    path = tmp_path / "cut.safetensors"
    fitted().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    with pytest.raises(FileError, match=r"cut\.safetensors is not an AGOP file, or is truncated"):
        agop.AGOP.load(path)


HEADER = '{"format": 1, "count": 3}'
WHOLE = {"diagonal": torch.ones(1, 2, 2, dtype=torch.float64)}
BY_CLASS = WHOLE | {"class_diagonals": torch.ones(2, 1, 2, 2)}
FOREIGN = {
    "other tensors": save({"weight": torch.ones(3)}),
    "other metadata": save({"weight": torch.ones(3)}, {"format": "pt"}),
    "a list as metadata": save(WHOLE, {"agop": "[1]"}),
    "deeply nested metadata": save(WHOLE, {"agop": "[" * 100_000}),
    "a count of 0": save(WHOLE, {"agop": '{"format": 1, "count": 0}'}),
    "no diagonal": save({"weight": torch.ones(3)}, {"agop": HEADER}),
    "a negative diagonal": save({"diagonal": -torch.ones(1, 2, 2)}, {"agop": HEADER}),
    "a diagonal without channels": save({"diagonal": torch.ones(2, 2)}, {"agop": HEADER}),
    "a diagonal of NaN": save({"diagonal": torch.full((1, 2, 2), torch.nan)}, {"agop": HEADER}),
    "a complex diagonal": save({"diagonal": torch.ones(1, 2, 2, dtype=torch.complex64)}, {"agop": HEADER}),
    "an empty diagonal": save({"diagonal": torch.ones(1, 0, 2)}, {"agop": HEADER}),
    "one class count": save(BY_CLASS | {"class_counts": torch.tensor(3)}, {"agop": HEADER}),
    "fractions as class counts": save(BY_CLASS | {"class_counts": torch.tensor([1.5, 1.5])}, {"agop": HEADER}),
    "negative class counts": save(BY_CLASS | {"class_counts": torch.tensor([5, -2])}, {"agop": HEADER}),
    "a pickle": pickle.dumps({"diagonal": 1}),
    "text": b"hello " * 100,
}


@pytest.mark.parametrize("kind", [*FOREIGN, "torch.save"])
def test_foreign_and_corrupt_files_raise_with_their_name(kind, tmp_path):
    path = tmp_path / "foreign.safetensors"
    path.write_bytes(FOREIGN.get(kind, b""))
    if kind == "torch.save":
        torch.save(WHOLE, path)
    with pytest.raises(FileError, match=path.name):
        agop.AGOP.load(path)


def test_newer_format_missing_file_and_unwritable_folder_raise(tmp_path):
    save_file(WHOLE, tmp_path / "new", {"agop": '{"format": 3, "count": 3}'})
    with pytest.raises(FileError, match=r"format 3.*upgrade"):
        agop.AGOP.load(tmp_path / "new")
    with pytest.raises(FileError, match="No such file"):
        agop.AGOP.load(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="could not write"):
        fitted().save(tmp_path / "file" / "prior.safetensors")


def test_failed_write_keeps_the_old_file(tmp_path):
    """A real write that fails half-way: the process has a file size limit of 4 KiB."""
    path = tmp_path / "prior.safetensors"
    fitted().save(path)
    old = path.read_bytes()
    code = f"""
        import resource, signal, torch, agop
        prior = agop.AGOP(torch.ones(3, 100, 100), 1)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            prior.save({str(path)!r})
        except agop.AGOPError as error:
            print(error)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "could not write" in result.stdout
    assert "unchanged" in result.stdout
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["prior.safetensors"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


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


def test_weights_are_the_root_of_the_relative_diagonal():
    prior = agop.AGOP(torch.tensor([[[4.0, 1.0]], [[0.0, 16.0]]], dtype=torch.float64), 5)
    assert prior.weights.flatten().tolist() == [0.5, 0.25, 0.0, 1.0]
    assert prior.map.tolist() == [[4.0, 17.0]]


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


def test_fingerprint_changes_with_one_training_step_and_ignores_wrappers():
    from agop.model.fingerprint import fingerprint

    model = zoo.build("batch norm and dropout").train()
    before = fingerprint(model)
    assert fingerprint(torch.nn.DataParallel(model)) == before
    assert fingerprint(torch.compile(model)) == before
    assert fingerprint(agop.prepare(model)) == before
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    model(zoo.images()).square().sum().backward()
    optimizer.step()
    assert fingerprint(model)["weights"] != before["weights"]
    assert fingerprint(model)["architecture"] == before["architecture"]


def test_copies_and_pickles_of_a_prior_hold_no_models():
    prior = fitted()
    prior.check(zoo.build("plain"), zoo.images())
    for again in (copy.deepcopy(prior), pickle.loads(pickle.dumps(prior))):
        assert torch.equal(again.diagonal, prior.diagonal)
        assert again.provenance == prior.provenance
    assert "20 samples" in repr(prior)
