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
from safetensors.torch import load_file, save_file

import agop
from agop.errors import AGOPWarning, FileError
from tests import zoo


def fitted(per_class=False, seed=0) -> agop.AGOP:
    model, images = zoo.build("plain", seed), zoo.images(20)
    return agop.fit(model, [(images, torch.arange(20) % 3)], only_correct=False, per_class=per_class, progress=False)


@pytest.mark.parametrize("per_class", [False, True])
def test_save_and_load_round_trip(per_class, tmp_path):
    prior = fitted(per_class)
    prior.save(tmp_path / "deeper" / "prior.safetensors")
    again = agop.AGOP.load(tmp_path / "deeper" / "prior.safetensors")
    assert torch.equal(again.diagonal, prior.diagonal)
    assert again.count == prior.count == 20
    assert again.provenance == prior.provenance
    if per_class:
        torch.testing.assert_close(again.class_diagonals, prior.class_diagonals, equal_nan=True)
        assert again.class_counts.tolist() == prior.class_counts.tolist()
    else:
        assert again.class_diagonals is None
        assert again.class_counts is None


def test_provenance_of_fit_and_hook():
    provenance = fitted().provenance
    assert provenance.format == 1
    assert provenance.kind == "one checkpoint"
    assert provenance.input_shape == (3, 12, 12)
    assert provenance.classes == 3
    assert provenance.count == 20
    assert provenance.options == {"only_correct": False, "per_class": False, "nan": "raise"}
    assert provenance.versions["torch"] == torch.__version__
    assert set(provenance.model) == {"architecture", "weights"}
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images())
    assert hook.finalize().provenance.kind == "training-accumulated"


def test_file_is_safetensors_with_json_metadata(tmp_path):
    fitted(per_class=True).save(tmp_path / "a.safetensors")
    assert set(load_file(tmp_path / "a.safetensors")) == {"diagonal", "class_diagonals", "class_counts"}
    content = (tmp_path / "a.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["agop"])["count"] == 20


def test_equal_statistics_give_equal_bytes(tmp_path):
    fitted().save(tmp_path / "a")
    fitted().save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 0.5, 0.99])
def test_truncated_file_raises(keep, tmp_path):
    path = tmp_path / "cut.safetensors"
    fitted().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    with pytest.raises(FileError, match=r"cut\.safetensors is not an AGOP file, or is truncated"):
        agop.AGOP.load(path)


def foreign_files(folder):
    torch.save({"diagonal": torch.ones(1, 2, 2)}, folder / "torch.pt")
    (folder / "pickle").write_bytes(pickle.dumps({"diagonal": 1}))
    (folder / "text").write_text("hello " * 100)
    save_file({"weight": torch.ones(3)}, folder / "weights.safetensors")
    save_file({"weight": torch.ones(3)}, folder / "other.safetensors", {"format": "pt"})
    save_file({"weight": torch.ones(3)}, folder / "json.safetensors", {"agop": "[1]"})
    save_file({"weight": torch.ones(3)}, folder / "empty.safetensors", {"agop": '{"format": 1, "count": 3}'})
    bad = {"agop": '{"format": 1, "count": 3}'}
    save_file({"diagonal": -torch.ones(1, 2, 2)}, folder / "negative.safetensors", bad)
    save_file({"diagonal": torch.ones(2, 2)}, folder / "flat.safetensors", bad)
    save_file({"diagonal": torch.full((1, 2, 2), torch.nan)}, folder / "nan.safetensors", bad)
    save_file({"diagonal": torch.ones(1, 2, 2)}, folder / "count.safetensors", {"agop": '{"format": 1, "count": 0}'})
    whole = {"diagonal": torch.ones(1, 2, 2, dtype=torch.float64)}
    for name, metadata in {
        "nested": "[" * 100_000, "true": '{"format": 1, "count": true}',
        "model": '{"format": 1, "count": 3, "model": {}}', "classes": '{"format": 1, "count": 3, "classes": "two"}',
    }.items():  # fmt: skip
        save_file(whole, folder / f"{name}.safetensors", {"agop": metadata})
    by_class = {"class_diagonals": torch.ones(2, 1, 2, 2)}
    for name, counts in {
        "0d": torch.tensor(3),
        "float": torch.tensor([1.5, 1.5]),
        "minus": torch.tensor([5, -2]),
    }.items():
        save_file(whole | by_class | {"class_counts": counts}, folder / f"counts-{name}.safetensors", bad)
    save_file({"diagonal": torch.ones(1, 2, 2).to(torch.complex64)}, folder / "complex.safetensors", bad)
    save_file({"diagonal": torch.ones(1, 0, 2)}, folder / "none.safetensors", bad)
    return sorted(folder.iterdir())


def test_foreign_and_corrupt_files_raise_with_their_name(tmp_path):
    files = foreign_files(tmp_path)
    assert len(files) == 20
    for path in files:
        with pytest.raises(FileError, match=path.name):
            agop.AGOP.load(path)


def test_newer_format_raises_with_upgrade_hint(tmp_path):
    save_file({"diagonal": torch.ones(1, 2, 2)}, tmp_path / "new", {"agop": '{"format": 2, "count": 3}'})
    with pytest.raises(FileError, match=r"format 2.*upgrade"):
        agop.AGOP.load(tmp_path / "new")


def test_missing_file_and_unwritable_folder_raise(tmp_path):
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
