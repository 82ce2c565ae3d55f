"""evaluate(): scores, table, run folder, and errors."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import agop
from agop import metrics
from agop.errors import InputError, PriorError
from agop.evaluating.controls import FIXED_MAPS
from agop.evaluating.scoring import Entry, score
from agop.pictures.heat import pixels
from agop.report.formats import registry
from agop.report.run import Run
from agop.runs.gallery import Gallery
from agop.runs.spec import RunSpec
from tests import zoo

pytestmark = pytest.mark.filterwarnings("ignore:the map of layer")
IMAGES = zoo.images(6)
LABELS = [0, 1, 2, 0, 1, 2]
MASKS = torch.zeros(6, 12, 12, dtype=torch.bool)
MASKS[:, 2:5, 3:6] = True
ONE_EMPTY = MASKS.clone()
ONE_EMPTY[2] = False


@pytest.fixture
def model():
    return zoo.build("plain")


@pytest.fixture
def prior(model):
    return agop.fit(model, [IMAGES], only_correct=False, progress=False)


def evaluate(model, masks=MASKS, methods="vanilla", metrics="iou", **options):
    """An evaluation of the six images, by one method and one metric unless given."""
    return agop.evaluate(model, IMAGES, masks, methods, metrics=metrics, **options)


def accuracy(model):
    return float((model(IMAGES).argmax(1) == torch.tensor(LABELS)).double().mean())


def test_scores_equal_those_of_explain_and_the_metrics(model, prior):
    evaluation = agop.evaluate(model, IMAGES, MASKS, ["agop-weighted", "gradcam"], prior, layer="body.0")
    for name in ("agop-weighted", "gradcam"):
        maps = agop.explain(model, IMAGES, name, prior, layer="body.0" if name == "gradcam" else None)
        assert torch.equal(evaluation.scores[name]["energy"], metrics.energy(maps, MASKS))
        torch.testing.assert_close(evaluation.scores[name]["deletion"], metrics.deletion(model, IMAGES, maps))
    row = next(r for r in evaluation.rows() if r["method"] == "gradcam" and r["metric"] == "iou")
    assert row["value"] == pytest.approx(float(evaluation.scores["gradcam"]["iou"].nanmean()))
    assert evaluation.milliseconds["gradcam"] > 0


def test_default_is_every_runnable_method_and_every_metric(model, prior):
    every = agop.evaluate(model, IMAGES, MASKS, prior=prior, metrics="iou", controls=False, references=IMAGES)
    assert list(every.scores) == agop.methods.runnable(prior, with_references=True)
    without = agop.evaluate(model, IMAGES, MASKS)
    assert list(without.scores)[: -len(FIXED_MAPS)] == agop.methods.runnable(None)
    assert {"agop-weighted", "agop-global", "expected-gradients"} <= set(agop.methods.names()) - set(without.scores)
    assert list(without.scores["vanilla"]) == metrics.default_names()


def test_references_are_for_methods_and_metrics(model):
    references = zoo.images(8, seed=9)
    scores = evaluate(model, methods="expected-gradients", metrics=["energy", "srg"], references=references).scores
    maps = agop.explain(model, IMAGES, "expected-gradients", references=references)
    assert torch.equal(scores["expected-gradients"]["energy"], metrics.energy(maps, MASKS))
    expected = metrics.srg(model, IMAGES, maps, references=references)
    torch.testing.assert_close(scores["expected-gradients"]["srg"], expected)
    with pytest.raises(InputError, match="expected-gradients needs reference images"):
        evaluate(model, methods=["vanilla", "expected-gradients"])


def test_controls_are_scored_beside_the_methods(model, tmp_path):
    """One mask for all images: only the mean mask shows that a map of it says nothing about the model."""
    evaluation = evaluate(model, metrics=["iou", "energy"])
    assert list(evaluation.scores) == ["vanilla", "centre", "mean-mask"]
    assert (evaluation.scores["mean-mask"]["energy"] == 1).all()
    assert list(evaluate(model, controls=False).scores) == ["vanilla"]
    evaluation.save(tmp_path / "run")
    page = registry.get("html")(Run(tmp_path / "run"))
    assert "the mean mask of the evaluated images" in page
    assert "mean mask of the training data" not in page


def test_undefined_scores_are_counted_with_their_reason(model):
    rows = evaluate(model, ONE_EMPTY, metrics=["energy", "deletion"]).rows()
    assert rows[0]["n"] == 5
    assert rows[0]["undefined"] == {"mask is empty": 1}
    assert rows[1]["n"] == 6
    row = evaluate(model, torch.zeros_like(MASKS), metrics="energy").rows()[0]
    assert row["value"] is None
    assert row["n"] == 0


def test_metrics_of_the_model_are_scored_once_and_others_per_kind_of_mask(model):
    masks = {"all": torch.ones_like(MASKS), "none": torch.zeros_like(MASKS)}
    both = [metrics.get("energy"), metrics.get("deletion")]
    (result,) = score(model, IMAGES, masks, [("mine", Entry(agop.methods.create("vanilla")))], both, [0, 3], steps=4)
    assert {kind: list(scores) for kind, scores in result.scores.items()} == {
        "all": ["energy", "deletion"], "none": ["energy"],
    }  # fmt: skip
    assert result.method == "mine"
    assert result.undefined == {"all": [None] * 6, "none": ["mask is empty"] * 6}
    assert result.maps.shape == (2, 12, 12)


def test_table_shows_the_accuracy_and_the_number_of_undefined_scores(model):
    evaluation = evaluate(model, ONE_EMPTY, ["vanilla", "random"], labels=LABELS)
    *_, accuracy_line, last = repr(evaluation).splitlines()
    assert accuracy_line == f"accuracy {accuracy(model):.3f}"
    assert last == "scores of 1 of 6 samples are undefined (mask is empty: 1)"
    assert repr(evaluation) == str(evaluation)


def test_methods_may_be_configured_and_masks_have_any_dtype(model):
    evaluation = evaluate(model, MASKS.bfloat16(), agop.methods.IntegratedGradients(steps=2), labels=LABELS)
    assert list(evaluation.scores["integrated-gradients"]) == ["iou"]
    assert evaluation.accuracy == accuracy(model)


@pytest.mark.parametrize("target", [np.int64(1), torch.tensor(1), [1] * 6], ids=repr)
def test_target_is_an_integer_of_any_library_or_one_per_image(model, target):
    scores = [evaluate(model, target=each, metrics=["energy", "deletion"]).scores["vanilla"] for each in (1, target)]
    assert all(torch.equal(scores[0][metric], scores[1][metric]) for metric in ("energy", "deletion"))
    gradients = [agop.input_gradients(model, IMAGES, each).values for each in (1, target)]
    assert torch.equal(*gradients)


class Nameless(agop.methods.Method):
    """Without a name."""

    def maps(self, job):
        return job.images.abs().sum(1)


WRONG_LABELS = r"pass one class per image, \(6,\)"
WRONG_MASKS = r"masks have shape .*: pass one mask per image, \("


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.zeros(6, 1, dtype=torch.long)}, WRONG_LABELS),
        ({"labels": torch.zeros(1, dtype=torch.long)}, WRONG_LABELS),
        ({"labels": torch.rand(6)}, WRONG_LABELS),
        ({"masks": MASKS[:2]}, WRONG_MASKS),
        ({"masks": MASKS[:, :3]}, WRONG_MASKS),
        ({"masks": MASKS[:, None]}, WRONG_MASKS),
        ({"masks": -MASKS.int()}, "signed=True"),
        ({"methods": []}, "nothing to evaluate"),
        ({"metrics": []}, "nothing to evaluate"),
        ({"metrics": ["energi"]}, "did you mean 'energy'"),
        ({"methods": ["vanilla", "vanilla"]}, "twice"),
        ({"methods": ["vanilla", lambda job: None]}, "method is a function: give a name or"),
        ({"methods": [Nameless()]}, "Nameless has no name: add name = "),
    ],
)
def test_mistakes_raise(model, change, message):
    with pytest.raises(InputError, match=message):
        evaluate(model, **change)


def test_prior_of_another_shape_raises_before_the_first_method(model, prior):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(PriorError, match="the prior is for images of shape"):
        agop.evaluate(model, IMAGES[..., :10], MASKS[..., :10], ["vanilla", "agop-weighted"], prior)
    assert not calls


def test_evaluation_is_saved_as_a_run_with_its_scores_and_samples(model, prior, tmp_path):
    evaluation = evaluate(
        model, methods=["vanilla", "agop-global"], metrics=["iou", "deletion"], prior=prior, labels=LABELS, steps=7
    )
    evaluation.save(tmp_path / "run", "mine")
    run = Run(tmp_path / "run")
    for method in ("vanilla", "agop-global"):
        estimate = run.estimate("mine", "given", method, "iou")
        assert estimate.values == tuple(evaluation.scores[method]["iou"].tolist())
        assert run.estimate("mine", "given", method, "milliseconds").mean == evaluation.milliseconds[method]
    assert run.estimate("mine", "given", "model", "accuracy").mean == accuracy(model)
    assert run.spec.steps == 7
    assert "set to 0 in 7 steps" in run.about.metrics["deletion"].what
    saved = agop.AGOP.load(tmp_path / "run" / "cells" / "mine-given-000" / "agop.safetensors")
    assert torch.equal(saved.diagonal, prior.diagonal)


def test_gallery_has_a_dozen_evenly_spaced_samples(model, tmp_path):
    """Images in class folders are sorted by class: the first dozen would all be of one."""
    images, labels = zoo.images(36), torch.arange(3).repeat_interleave(12)
    masks = torch.rand(36, 12, 12, generator=torch.Generator().manual_seed(0)) > 0.5
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=labels)
    places = evaluation.gallery.places.tolist()
    assert (len(places), places[0], places[-1]) == (12, 0, 35)
    assert {after - before for before, after in itertools.pairwise(places)} == {3, 4}
    evaluation.save(tmp_path / "run")
    for gallery in (evaluation.gallery, Gallery.load(tmp_path / "run" / "cells" / "own-given-000")):
        assert gallery.places.tolist() == places
        assert gallery.labels.tolist() == labels[places].tolist()
        assert gallery.labels.tolist().count(1) == 4
        assert gallery.predicted.tolist() == model(images)[places].argmax(1).tolist()
        assert (gallery.masks["true"] == masks[places].numpy()).all()
        assert (gallery.maps["vanilla"] == agop.explain(model, images, "vanilla")[places].numpy()).all()
        assert (gallery.pictures == pixels(images[places])).all()


def test_gallery_has_all_of_few_samples_and_marks_unknown_labels(model):
    gallery = evaluate(model).gallery
    assert gallery.places.tolist() == [0, 1, 2, 3, 4, 5]
    assert gallery.labels.tolist() == [-1] * 6


def test_folder_that_is_not_an_evaluation_is_not_overwritten(model, tmp_path):
    evaluation = evaluate(model)
    (tmp_path / "notes.txt").write_text("mine")
    RunSpec("xai-tris", ("linear",), ("uncorrelated",), 1, ("vanilla",), ("iou",)).save(tmp_path / "bench")
    for folder in (tmp_path, tmp_path / "bench"):
        with pytest.raises(InputError, match="choose another folder"):
            evaluation.save(folder)
    evaluation.save(tmp_path / "run", "one")
    evaluation.save(tmp_path / "run", "two")  # replaces the evaluation
    assert [path.name for path in (tmp_path / "run" / "cells").iterdir()] == ["two-given-000"]


def test_interrupted_save_keeps_the_earlier_evaluation(model, tmp_path, monkeypatch):
    predicted = model(IMAGES).argmax(1)
    evaluate(model, labels=(predicted + 1) % 3).save(tmp_path / "run")
    evaluation = evaluate(model, labels=predicted)
    with monkeypatch.context() as patch:
        patch.setattr("agop.evaluating.table.collect", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            evaluation.save(tmp_path / "run")
    assert Run(tmp_path / "run").estimate("own", "given", "model", "accuracy").mean == 0.0
    evaluation.save(tmp_path / "run")
    assert Run(tmp_path / "run").estimate("own", "given", "model", "accuracy").mean == 1.0


def test_leftovers_of_a_killed_evaluation_are_replaced(model, tmp_path):
    """Killed while writing, and after that: before the files were moved into place."""
    evaluation = evaluate(model)
    (tmp_path / "part" / ".new.part" / "cells").mkdir(parents=True)
    evaluation.save(tmp_path / "whole" / ".new", "killed")
    assert Run(tmp_path / "whole").spec.scenarios == ("killed",)
    for folder in ("part", "whole"):
        evaluation.save(tmp_path / folder, "mine")
        assert Run(tmp_path / folder).spec.scenarios == ("mine",)


def test_model_without_gradients_is_evaluated_by_methods_that_need_none():
    class Rounded(torch.nn.Module):
        def forward(self, images):
            return images.detach().mean((2, 3)).round()

    assert evaluate(Rounded(), methods="random").scores["random"]["iou"].isfinite().all()


def test_time_of_the_first_pass_is_not_counted(model, monkeypatch):
    """Compiled models and fresh libraries are slow at the first pass. The clock advances only with the model."""
    passes = [1.0, *[0.006] * 100]
    clock = []
    model.register_forward_pre_hook(lambda *_: clock.append(passes[len(clock)]))
    monkeypatch.setattr("agop.evaluating.scoring.time", SimpleNamespace(perf_counter=lambda: sum(clock)))
    assert evaluate(model).milliseconds["vanilla"] == pytest.approx(6 / len(IMAGES))


def test_contrast_scores_the_maps_of_the_log_odds_and_says_so(model):
    prior = agop.fit(model, [IMAGES], only_correct=False, progress=False, output="contrast")
    result = agop.evaluate(model, IMAGES, MASKS, ["vanilla", "agop-weighted"], prior, "energy", output="contrast")
    for name, values in result.scores.items():
        if name not in FIXED_MAPS:
            maps = agop.explain(model, IMAGES, name, prior, output="contrast")
            torch.testing.assert_close(values["energy"], metrics.energy(maps, MASKS))
            assert not torch.allclose(maps, agop.explain(model, IMAGES, "vanilla"), rtol=1e-2)
    assert "Gradients are those of the contrast" in repr(result)
    assert "contrast" not in repr(agop.evaluate(model, IMAGES, MASKS, "vanilla", metrics="energy"))
    with pytest.raises(InputError, match="output is 'odds': give 'predicted' or 'contrast'"):
        agop.evaluate(model, IMAGES, MASKS, "vanilla", output="odds")


def test_references_are_those_of_the_caller_also_for_a_method_with_a_prior(model, prior):
    expected = agop.explain(model, IMAGES, "agop-expected", prior, references=IMAGES.flip(0)[:2])
    table = agop.evaluate(
        model, IMAGES, MASKS, "agop-expected", prior, ["energy"], controls=False, references=IMAGES.flip(0)[:2]
    )
    torch.testing.assert_close(table.scores["agop-expected"]["energy"], agop.metrics.energy(expected, MASKS))
