"""A session: methods, results, skipped files, and the download."""

import json
import zipfile
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import agop
from agop.app import example
from agop.app.folder import write_zip
from agop.app.session import Session
from agop.app.uploads import FORMATS, MOST_FILES
from agop.cli.app import load_session
from agop.errors import AGOPError, AGOPWarning, InputError


def test_methods_that_need_a_prior_are_offered_only_with_one(session):
    assert session.offered() == agop.methods.runnable(session.explainer.prior)
    assert {"agop-weighted", "agop-global"} <= set(session.offered())
    without = load_session(**example.ARGUMENTS | {"prior": None})
    # The example's prior has image moments, from which references are drawn.
    kinds = {name: agop.methods.get(name) for name in session.offered()}
    alone = [name for name, kind in kinds.items() if not kind.needs_prior and not kind.needs_references]
    assert without.offered() == alone
    assert not {"agop-weighted", "agop-global"} & set(without.offered())
    with pytest.raises(InputError, match="agop-weighted can't run, there is no AGOP file"):
        without.explain(example.images(), ["vanilla", "agop-weighted"])


def test_methods_with_references_are_offered_if_the_prior_has_some(session):
    prior = session.explainer.prior
    without, moments = (
        Session(replace(session.explainer, prior=replace(prior, image_moments=values, references=None)), (), "")
        for values in (None, torch.stack([prior.diagonal, prior.diagonal]).float())
    )
    assert "expected-gradients" not in without.offered()
    with pytest.raises(InputError, match="expected-gradients can't run, the prior has no image moments"):
        without.explain(example.images(), ["expected-gradients"])
    assert "expected-gradients" in moments.offered()
    assert list(moments.explain(example.images()[:1], ["expected-gradients"]).results[0].maps) == ["expected-gradients"]


def test_unknown_methods_and_no_methods_raise(session):
    with pytest.raises(InputError, match="no method selected"):
        session.explain(example.images(), [])
    with pytest.raises(AGOPError, match="magic"):
        session.explain(example.images(), ["magic"])


def test_results_equal_those_of_explain(session):
    path = example.images()[0]
    outcome = session.explain([path], session.offered())
    [result] = outcome.results
    preprocessing = session.explainer.preprocessing
    image = preprocessing.tensor(preprocessing.picture(path))[None]
    model, prior = example.network(), agop.AGOP.load(example.PRIOR)
    with torch.no_grad():
        torch.testing.assert_close(result.probabilities.float(), model(image).softmax(1)[0])
    assert result.predicted == int(result.probabilities.argmax())
    for name, saliency in result.maps.items():
        layer = "conv3" if name.startswith("gradcam") else None
        with pytest.warns(agop.AGOPWarning) if layer else nullcontext():
            expected = agop.explain(model, image, name, prior, layer=layer)[0]
        torch.testing.assert_close(saliency, expected.float())
    assert any("conv3" in note for note in outcome.notes)


def test_too_many_files_are_cut_with_a_message(session):
    outcome = session.explain([example.images()[0]] * (MOST_FILES + 2), ["vanilla"])
    assert len(outcome.results) == MOST_FILES
    assert outcome.skipped == [f"{MOST_FILES + 2} files are too many: only the first {MOST_FILES} are explained"]


class Flat(torch.nn.Module):
    """A linear model with one logit, and no layer that has a map."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 1)

    def forward(self, x):
        return self.fc(x.flatten(1))


def test_failing_method_is_skipped_and_one_logit_means_two_classes(tmp_path):
    change = {"model": f"{__name__}:Flat", "prior": None, "layer": None, "names": None}
    with pytest.warns(AGOPWarning, match="random weights"):
        session = load_session(**example.ARGUMENTS | change)
    assert session.classes == 2
    outcome = session.explain(example.images(), ["vanilla", "gradcam"])
    assert len(outcome.skipped) == 1
    assert outcome.skipped[0].startswith("gradcam: the model has no convolution")
    assert outcome.explainer.methods == ["vanilla"]
    for result in outcome.results:
        assert float(result.probabilities.sum()) == pytest.approx(1)
        assert result.predicted == int(result.probabilities.argmax())
    with zipfile.ZipFile(write_zip(outcome, session.about, tmp_path)) as archive:
        assert json.loads(archive.read("explanations/manifest.json"))["methods"].keys() == {"vanilla"}


def test_download_is_the_folder_that_explain_writes_without_bad_files(session, tmp_path):
    (tmp_path / "note.png").write_text("a note")
    files = [example.images()[0], tmp_path / "note.png", example.images()[0], example.images()[1]]
    outcome = session.explain(files, ["vanilla", "agop-weighted"])
    assert outcome.skipped == [f"note.png: isn't an image: use {', '.join(FORMATS)}"]
    with zipfile.ZipFile(write_zip(outcome, session.about, tmp_path)) as archive:
        archive.extractall(tmp_path / "out")
    folder = tmp_path / "out" / "explanations"
    pictures = ["L-1.png", "L-1-2.png", example.images()[1].name]
    assert {path.name for path in (folder / "overlays").iterdir()} == set(pictures)
    assert {path.name for path in folder.iterdir()} == {"overlays", "maps.safetensors", "manifest.json", "index.html"}
    maps = load_file(folder / "maps.safetensors")
    assert maps.keys() == {"vanilla", "agop-weighted"}
    torch.testing.assert_close(maps["vanilla"][1], outcome.results[1].maps["vanilla"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [entry["file"] for entry in manifest["images"]] == ["L-1.png", "L-1.png", example.images()[1].name]
    assert manifest["classes"] == ["T", "L"]
    assert manifest["skipped"] == outcome.skipped
    assert str(tmp_path) not in (folder / "manifest.json").read_text()
    others = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and folder not in path.parents and path.parent != tmp_path
    ]
    assert [path.suffix for path in others] == [".zip"]
