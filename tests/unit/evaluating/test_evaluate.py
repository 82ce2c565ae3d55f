"""evaluate(): scores, table, run folder, and errors."""

import itertools
from types import SimpleNamespace

import pytest
import torch

import agop
from agop import metrics
from agop.errors import InputError, PriorError, UnknownNameError
from agop.pictures.heat import pixels
from agop.report.run import Run
from agop.runs.gallery import Gallery
from agop.runs.spec import RunSpec
from tests import zoo

pytestmark = pytest.mark.filterwarnings("ignore:the map of layer")


def setting():
    model, images = zoo.build("plain"), zoo.images(6)
    masks = torch.zeros(6, 12, 12, dtype=torch.bool)
    masks[:, 2:5, 3:6] = True
    return model, images, masks, agop.fit(model, [images], only_correct=False, progress=False)


def test_scores_equal_those_of_explain_and_the_metrics():
    model, images, masks, prior = setting()
    evaluation = agop.evaluate(model, images, masks, ["agop-weighted", "gradcam"], prior, layer="body.0")
    for name in ("agop-weighted", "gradcam"):
        maps = agop.explain(model, images, name, prior, layer="body.0" if name == "gradcam" else None)
        assert torch.equal(evaluation.scores[name]["energy"], metrics.energy(maps, masks))
        torch.testing.assert_close(evaluation.scores[name]["deletion"], metrics.deletion(model, images, maps))
    row = next(r for r in evaluation.rows() if r["method"] == "gradcam" and r["metric"] == "iou")
    assert row["value"] == pytest.approx(float(evaluation.scores["gradcam"]["iou"].nanmean()))
    assert evaluation.milliseconds["gradcam"] > 0
    table = str(evaluation)
    assert len(table.splitlines()) == 3
    assert "Energy-GT" in table
    assert "agop-weighted" in table


def test_default_is_every_runnable_method_and_every_metric():
    model, images, masks, prior = setting()
    assert list(agop.evaluate(model, images, masks, prior=prior).scores) == agop.methods.names()
    without = agop.evaluate(model, images, masks)
    assert set(agop.methods.names()) - set(without.scores) == {"agop-weighted", "agop-global"}
    assert list(without.scores["vanilla"]) == metrics.names()


def test_undefined_scores_are_counted_with_their_reason():
    model, images, masks, _ = setting()
    masks[2] = False
    rows = agop.evaluate(model, images, masks, ["vanilla"], metrics=["energy", "deletion"]).rows()
    assert rows[0]["n"] == 5
    assert rows[0]["undefined"] == {"mask is empty": 1}
    assert rows[1]["n"] == 6
    masks[:] = False
    row = agop.evaluate(model, images, masks, ["vanilla"], metrics=["energy"]).rows()[0]
    assert row["value"] is None
    assert row["n"] == 0


def test_configured_methods_are_accepted_and_mistakes_raise():
    model, images, masks, _ = setting()
    few = agop.evaluate(model, images, masks, [agop.methods.IntegratedGradients(steps=2)], metrics=["energy"])
    assert list(few.scores) == ["integrated-gradients"]
    with pytest.raises(InputError, match="twice"):
        agop.evaluate(model, images, masks, ["vanilla", "vanilla"])
    with pytest.raises(UnknownNameError, match="did you mean 'energy'"):
        agop.evaluate(model, images, masks, metrics=["energi"])
    with pytest.raises(InputError, match="signed=True"):
        agop.evaluate(model, images, -masks.int(), ["vanilla"])


def test_evaluation_is_saved_as_a_run_with_its_scores_and_samples(tmp_path):
    model, images, masks, prior = setting()
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    evaluation = agop.evaluate(
        model, images, masks, ["vanilla", "agop-global"], prior, ["iou", "energy"], labels=labels
    )
    evaluation.save(tmp_path / "run", "mine")
    run = Run(tmp_path / "run")
    for method in ("vanilla", "agop-global"):
        estimate = run.estimate("mine", "given", method, "iou")
        assert estimate.values == tuple(evaluation.scores[method]["iou"].tolist())
        assert run.estimate("mine", "given", method, "milliseconds").mean == evaluation.milliseconds[method]
    right = float((model(images).argmax(1) == labels).double().mean())
    assert run.estimate("mine", "given", "model", "accuracy").mean == right
    gallery = Gallery.load(tmp_path / "run" / "cells" / run.spec.cells()[0].name)
    assert gallery.labels.tolist() == labels.tolist()
    assert gallery.predicted.tolist() == model(images).argmax(1).tolist()
    assert (gallery.masks["true"] == masks.numpy()).all()
    vanilla = agop.explain(model, images, "vanilla")
    assert (gallery.maps["vanilla"] == vanilla.numpy()).all()
    saved = agop.AGOP.load(tmp_path / "run" / "cells" / "mine-given-000" / "agop.safetensors")
    assert torch.equal(saved.diagonal, prior.diagonal)


def test_gallery_has_a_dozen_evenly_spaced_samples(tmp_path):
    """Images in class folders are sorted by class: the first dozen would all be of one."""
    model, images, labels = zoo.build("plain"), zoo.images(36), torch.arange(3).repeat_interleave(12)
    masks = torch.rand(36, 12, 12, generator=torch.Generator().manual_seed(0)) > 0.5
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=labels)
    gallery = evaluation.gallery
    places = gallery.places.tolist()
    assert (len(places), places[0], places[-1]) == (12, 0, 35)
    assert {after - before for before, after in itertools.pairwise(places)} == {3, 4}
    assert gallery.labels.tolist() == labels[places].tolist()
    assert gallery.labels.tolist().count(1) == 4
    assert gallery.predicted.tolist() == model(images)[places].argmax(1).tolist()
    assert (gallery.masks["true"] == masks[places].numpy()).all()
    assert (gallery.maps["vanilla"] == agop.explain(model, images, "vanilla")[places].numpy()).all()
    assert (gallery.pictures == pixels(images[places])).all()
    evaluation.save(tmp_path / "run")
    assert Gallery.load(tmp_path / "run" / "cells" / "own-given-000").places.tolist() == places


def test_steps_of_deletion_are_saved_in_the_run(tmp_path):
    model, images, masks, _ = setting()
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["deletion"], steps=7)
    evaluation.save(tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.spec.steps == 7
    assert "set to 0 in 7 steps" in run.about["metrics"]["deletion"]["what"]


def test_gallery_has_all_of_few_samples_and_marks_unknown_labels():
    model, images = zoo.build("plain"), zoo.images(5)
    evaluation = agop.evaluate(model, images, torch.ones(5, 12, 12, dtype=torch.bool), ["vanilla"], metrics=["iou"])
    assert evaluation.gallery.places.tolist() == [0, 1, 2, 3, 4]
    assert evaluation.gallery.labels.tolist() == [-1] * 5


def test_folder_that_is_not_an_evaluation_is_not_overwritten(tmp_path):
    model, images, masks, _ = setting()
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"])
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="choose another folder"):
        evaluation.save(tmp_path)
    evaluation.save(tmp_path / "run", "one")
    evaluation.save(tmp_path / "run", "two")  # replaces the evaluation
    assert [path.name for path in (tmp_path / "run" / "cells").iterdir()] == ["two-given-000"]
    RunSpec("xai-tris", ("linear",), ("uncorrelated",), 1, ("vanilla",), ("iou",)).save(tmp_path / "bench")
    with pytest.raises(InputError, match="choose another folder"):
        evaluation.save(tmp_path / "bench")


def test_prior_of_another_shape_raises_before_the_first_method():
    model, images, masks, prior = setting()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(PriorError, match="the prior is for images of shape"):
        agop.evaluate(model, images[..., :10], masks[..., :10], ["vanilla", "agop-weighted"], prior)
    assert not calls


def test_repr_is_the_table():
    model, images, masks, _ = setting()
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"])
    assert repr(evaluation) == str(evaluation)
    assert "tensor" not in repr(evaluation)


@pytest.mark.parametrize(
    "labels", [torch.zeros(6, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long), torch.rand(6)]
)
def test_labels_of_wrong_shape_or_dtype_raise(labels):
    model, images, masks, _ = setting()
    with pytest.raises(InputError, match=r"pass one class per image, \(6,\)"):
        agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=labels)


def test_masks_of_wrong_number_or_size_raise():
    model, images, masks, _ = setting()
    for wrong in (masks[:2], masks[:, :3], masks[:, None]):
        with pytest.raises(InputError, match=r"masks have shape .*: pass one mask per image, \("):
            agop.evaluate(model, images, wrong)


def test_one_method_and_one_metric_need_no_list():
    model, images, masks, _ = setting()
    evaluation = agop.evaluate(model, images, masks, "vanilla", metrics="iou")
    assert {name: list(scores) for name, scores in evaluation.scores.items()} == {"vanilla": ["iou"]}


def test_invalid_methods_raise():
    class Nameless(agop.methods.Method):
        """Without a name."""

        def maps(self, job):
            return job.images.abs().sum(1)

    model, images, masks, _ = setting()
    with pytest.raises(InputError, match=r"method is a function: give a name or"):
        agop.evaluate(model, images, masks, ["vanilla", lambda job: None])
    with pytest.raises(InputError, match=r"Nameless has no name: add name = "):
        agop.evaluate(model, images, masks, [Nameless()])


def test_table_shows_the_accuracy_and_the_number_of_undefined_scores():
    model, images, masks, _ = setting()
    masks[0] = False
    table = repr(agop.evaluate(model, images, masks, ["vanilla", "random"], metrics=["iou"], labels=[0] * len(images)))
    count = len(images)
    assert table.splitlines()[-1] == f"scores of 1 of {count} samples are undefined (mask is empty: 1)"
    assert table.splitlines()[-2].startswith("accuracy 0.") or table.splitlines()[-2] == "accuracy 1.000"


def test_labels_may_be_a_list_and_masks_of_any_dtype():
    model, images, masks, _ = setting()
    evaluation = agop.evaluate(model, images, masks.bfloat16(), ["vanilla"], metrics=["iou"], labels=[0, 1, 2, 0, 1, 2])
    assert evaluation.accuracy == float((model(images).argmax(1) == torch.tensor([0, 1, 2, 0, 1, 2])).double().mean())


@pytest.mark.parametrize("empty", [{"methods": []}, {"metrics": []}])
def test_nothing_to_evaluate_raises(empty):
    model, images, masks, _ = setting()
    with pytest.raises(InputError, match="nothing to evaluate"):
        agop.evaluate(model, images, masks, **empty)


def test_interrupted_save_never_mixes_old_results_with_new_ones(tmp_path, monkeypatch):
    model, images, masks, _ = setting()
    right, wrong = model(images).argmax(1), (model(images).argmax(1) + 1) % 3
    agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=wrong).save(tmp_path / "run")
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=right)
    monkeypatch.setattr("agop.evaluating.table.collect", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        evaluation.save(tmp_path / "run")
    assert Run(tmp_path / "run").estimate("own", "given", "model", "accuracy").mean == 1.0


def test_model_without_gradients_is_evaluated_by_methods_that_need_none():
    class Rounded(torch.nn.Module):
        def forward(self, images):
            return images.detach().mean((2, 3)).round()

    _, images, masks, _ = setting()
    evaluation = agop.evaluate(Rounded(), images, masks, ["random"], metrics=["energy"])
    assert evaluation.scores["random"]["energy"].isfinite().all()


def test_time_of_the_first_pass_is_not_counted(monkeypatch):
    """Compiled models and fresh libraries are slow at the first pass. The clock advances only with the model."""
    model, images, masks, _ = setting()
    passes = [1.0, *[0.006] * 100]
    clock = []
    model.register_forward_pre_hook(lambda *_: clock.append(passes[len(clock)]))
    monkeypatch.setattr("agop.evaluating.scoring.time", SimpleNamespace(perf_counter=lambda: sum(clock)))
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["energy"])
    assert evaluation.milliseconds["vanilla"] == pytest.approx(6 / len(images))
