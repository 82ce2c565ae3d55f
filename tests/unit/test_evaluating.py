import itertools
import time

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


def test_the_scores_are_those_of_explain_and_the_metrics():
    model, images, masks, prior = setting()
    found = agop.evaluate(model, images, masks, ["agop-weighted", "gradcam"], prior, layer="body.0")
    for name in ("agop-weighted", "gradcam"):
        maps = agop.explain(model, images, name, prior, layer="body.0" if name == "gradcam" else None)
        assert torch.equal(found.scores[name]["energy"], metrics.energy(maps, masks))
        torch.testing.assert_close(found.scores[name]["deletion"], metrics.deletion(model, images, maps))
    row = next(r for r in found.rows() if r["method"] == "gradcam" and r["metric"] == "iou")
    assert row["value"] == pytest.approx(float(found.scores["gradcam"]["iou"].nanmean()))
    assert found.milliseconds["gradcam"] > 0
    table = str(found)
    assert len(table.splitlines()) == 3
    assert "Energy-GT" in table
    assert "agop-weighted" in table


def test_by_default_every_method_that_can_run_and_every_metric():
    model, images, masks, prior = setting()
    assert list(agop.evaluate(model, images, masks, prior=prior).scores) == agop.methods.names()
    without = agop.evaluate(model, images, masks)
    assert set(agop.methods.names()) - set(without.scores) == {"agop-weighted", "agop-global"}
    assert list(without.scores["vanilla"]) == metrics.names()


def test_undefined_scores_are_counted_with_their_reason_and_never_invented():
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


def test_configured_methods_and_mistakes():
    model, images, masks, _ = setting()
    few = agop.evaluate(model, images, masks, [agop.methods.IntegratedGradients(steps=2)], metrics=["energy"])
    assert list(few.scores) == ["integrated-gradients"]
    with pytest.raises(InputError, match="twice"):
        agop.evaluate(model, images, masks, ["vanilla", "vanilla"])
    with pytest.raises(UnknownNameError, match="did you mean 'energy'"):
        agop.evaluate(model, images, masks, metrics=["energi"])
    with pytest.raises(InputError, match="signed=True"):
        agop.evaluate(model, images, -masks.int(), ["vanilla"])


def test_an_evaluation_is_saved_as_a_run_with_its_scores_and_samples(tmp_path):
    model, images, masks, prior = setting()
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    found = agop.evaluate(model, images, masks, ["vanilla", "agop-global"], prior, ["iou", "energy"], labels=labels)
    found.save(tmp_path / "run", "mine")
    run = Run(tmp_path / "run")
    for method in ("vanilla", "agop-global"):
        estimate = run.estimate("mine", "given", method, "iou")
        assert estimate.values == tuple(found.scores[method]["iou"].tolist())
        assert run.estimate("mine", "given", method, "milliseconds").mean == found.milliseconds[method]
    right = float((model(images).argmax(1) == labels).double().mean())
    assert run.estimate("mine", "given", "model", "accuracy").mean == right
    kept = Gallery.load(tmp_path / "run" / "cells" / run.spec.cells()[0].name)
    assert kept.labels.tolist() == labels.tolist()
    assert kept.predicted.tolist() == model(images).argmax(1).tolist()
    assert (kept.masks["true"] == masks.numpy()).all()
    vanilla = agop.explain(model, images, "vanilla")
    assert (kept.maps["vanilla"] == vanilla.numpy()).all()
    saved = agop.AGOP.load(tmp_path / "run" / "cells" / "mine-given-000" / "agop.safetensors")
    assert torch.equal(saved.diagonal, prior.diagonal)


def test_of_many_samples_a_dozen_at_equal_distances_are_kept(tmp_path):
    """Pictures in class folders stand class after class: the first dozen would be all of one."""
    model, images, labels = zoo.build("plain"), zoo.images(36), torch.arange(3).repeat_interleave(12)
    masks = torch.rand(36, 12, 12, generator=torch.Generator().manual_seed(0)) > 0.5
    found = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=labels)
    kept = found.gallery
    places = kept.places.tolist()
    assert (len(places), places[0], places[-1]) == (12, 0, 35)
    assert {after - before for before, after in itertools.pairwise(places)} == {3, 4}
    assert kept.labels.tolist() == labels[places].tolist()
    assert kept.labels.tolist().count(1) == 4
    assert kept.predicted.tolist() == model(images)[places].argmax(1).tolist()
    assert (kept.masks["true"] == masks[places].numpy()).all()
    assert (kept.maps["vanilla"] == agop.explain(model, images, "vanilla")[places].numpy()).all()
    assert (kept.pictures == pixels(images[places])).all()
    found.save(tmp_path / "run")
    assert Gallery.load(tmp_path / "run" / "cells" / "own-given-000").places.tolist() == places


def test_the_steps_of_deletion_are_told_in_the_run(tmp_path):
    model, images, masks, _ = setting()
    found = agop.evaluate(model, images, masks, ["vanilla"], metrics=["deletion"], steps=7)
    found.save(tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.spec.steps == 7
    assert "set to 0 in 7 steps" in run.about["metrics"]["deletion"]["what"]


def test_of_few_samples_all_are_kept_and_without_labels_nobody_knows_them():
    model, images = zoo.build("plain"), zoo.images(5)
    found = agop.evaluate(model, images, torch.ones(5, 12, 12, dtype=torch.bool), ["vanilla"], metrics=["iou"])
    assert found.gallery.places.tolist() == [0, 1, 2, 3, 4]
    assert found.gallery.labels.tolist() == [-1] * 5


def test_a_folder_of_something_else_is_not_written_into(tmp_path):
    model, images, masks, _ = setting()
    found = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"])
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="name another folder"):
        found.save(tmp_path)
    found.save(tmp_path / "run", "one")
    found.save(tmp_path / "run", "two")  # an evaluation may be made anew
    assert [path.name for path in (tmp_path / "run" / "cells").iterdir()] == ["two-given-000"]
    RunSpec("xai-tris", ("linear",), ("uncorrelated",), 1, ("vanilla",), ("iou",)).save(tmp_path / "bench")
    with pytest.raises(InputError, match="name another folder"):
        found.save(tmp_path / "bench")


def test_a_prior_that_does_not_fit_is_told_before_the_first_method():
    model, images, masks, prior = setting()
    asked = []
    model.register_forward_hook(lambda *_: asked.append(1))
    with pytest.raises(PriorError, match="the prior is for images of shape"):
        agop.evaluate(model, images[..., :10], masks[..., :10], ["vanilla", "agop-weighted"], prior)
    assert not asked


def test_an_evaluation_shows_itself_as_its_table():
    model, images, masks, _ = setting()
    found = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"])
    assert repr(found) == str(found)
    assert "tensor" not in repr(found)


@pytest.mark.parametrize(
    "labels", [torch.zeros(6, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long), torch.rand(6)]
)
def test_labels_of_another_shape_are_told_before_the_first_method(labels):
    model, images, masks, _ = setting()
    with pytest.raises(InputError, match="give a class for each of 6 images"):
        agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=labels)


def test_masks_of_another_number_or_size_are_told_before_the_first_method():
    model, images, masks, _ = setting()
    for wrong in (masks[:2], masks[:, :3], masks[:, None]):
        with pytest.raises(InputError, match=r"masks have shape .*: give a mask an image, \("):
            agop.evaluate(model, images, wrong)


def test_one_method_and_one_metric_need_no_list():
    model, images, masks, _ = setting()
    found = agop.evaluate(model, images, masks, "vanilla", metrics="iou")
    assert {name: list(scores) for name, scores in found.scores.items()} == {"vanilla": ["iou"]}


def test_what_is_no_method_is_told():
    class Nameless(agop.methods.Method):
        """Without a name."""

        def maps(self, job):
            return job.images.abs().sum(1)

    model, images, masks, _ = setting()
    with pytest.raises(InputError, match=r"method is a function: give a name or"):
        agop.evaluate(model, images, masks, ["vanilla", lambda job: None])
    with pytest.raises(InputError, match=r"Nameless has no name: add name = "):
        agop.evaluate(model, images, masks, [Nameless()])


def test_the_table_says_how_many_scores_are_undefined_and_the_accuracy():
    model, images, masks, _ = setting()
    masks[0] = False
    told = repr(agop.evaluate(model, images, masks, ["vanilla", "random"], metrics=["iou"], labels=[0] * len(images)))
    count = len(images)
    assert told.splitlines()[-1] == f"scores of 1 of {count} samples are undefined (mask is empty: 1)"
    assert told.splitlines()[-2].startswith("accuracy 0.") or told.splitlines()[-2] == "accuracy 1.000"


def test_labels_may_be_a_list_and_masks_of_any_numbers():
    model, images, masks, _ = setting()
    found = agop.evaluate(model, images, masks.bfloat16(), ["vanilla"], metrics=["iou"], labels=[0, 1, 2, 0, 1, 2])
    assert found.accuracy == float((model(images).argmax(1) == torch.tensor([0, 1, 2, 0, 1, 2])).double().mean())


@pytest.mark.parametrize("empty", [{"methods": []}, {"metrics": []}])
def test_nothing_to_evaluate_is_told(empty):
    model, images, masks, _ = setting()
    with pytest.raises(InputError, match="nothing to evaluate"):
        agop.evaluate(model, images, masks, **empty)


def test_a_save_that_is_cut_short_never_shows_old_figures_as_new(tmp_path, monkeypatch):
    model, images, masks, _ = setting()
    right, wrong = model(images).argmax(1), (model(images).argmax(1) + 1) % 3
    agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=wrong).save(tmp_path / "run")
    found = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=right)
    monkeypatch.setattr("agop.evaluating.table.collect", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        found.save(tmp_path / "run")
    assert Run(tmp_path / "run").estimate("own", "given", "model", "accuracy").mean == 1.0


def test_a_model_that_has_no_gradients_is_evaluated_by_what_needs_none():
    class Rounded(torch.nn.Module):
        def forward(self, images):
            return images.detach().mean((2, 3)).round()

    _, images, masks, _ = setting()
    found = agop.evaluate(Rounded(), images, masks, ["random"], metrics=["energy"])
    assert found.scores["random"]["energy"].isfinite().all()


def test_the_first_method_does_not_pay_for_the_first_pass_of_all():
    """A model that takes long when it is first asked, as compiled ones and fresh libraries do."""
    model, images, masks, _ = setting()
    slow = [0.5]
    model.register_forward_pre_hook(lambda *_: time.sleep(slow.pop()) if slow else None)
    found = agop.evaluate(model, images, masks, ["vanilla"], metrics=["energy"])
    assert not slow
    assert found.milliseconds["vanilla"] < 500 / len(images)
