"""evaluate(): scores, table, run folder, and errors."""

import itertools
import json
import re
import time
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import agop
from agop import metrics
from agop.errors import AGOPWarning, GradientError, InputError, PriorError
from tests import zoo
from tests.command import run_checked

pytestmark = pytest.mark.filterwarnings("ignore:the map of layer")
IMAGES = zoo.images(6)
LABELS = [0, 1, 2, 0, 1, 2]
MASKS = torch.zeros(6, 12, 12, dtype=torch.bool)
MASKS[:, 2:5, 3:6] = True
ONE_EMPTY = MASKS.clone()
ONE_EMPTY[2] = False
CONTROLS = ["centre", "mean-mask"]  # beside the methods


@pytest.fixture
def model():
    return zoo.build("plain")


@pytest.fixture
def prior(model):
    return agop.fit(model, [IMAGES], only_correct=False, progress=False)


def evaluate(model, masks=MASKS, methods="vanilla", metrics="iou", images=IMAGES, **options):
    """An evaluation of the six images, by one method and one metric unless given."""
    return agop.evaluate(model, images, masks, methods, metrics=metrics, **options)


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


def test_the_heading_of_a_column_names_its_metric(model):
    assert list(evaluate(model, metrics=["AP", "miou"]).scores["vanilla"]) == ["average_precision", "iou"]


def test_default_is_every_runnable_method_and_every_metric(model, prior):
    every = agop.evaluate(model, IMAGES, MASKS, prior=prior, metrics="iou", controls=False, references=IMAGES)
    assert list(every.scores) == agop.methods.runnable(prior, with_references=True)
    without = agop.evaluate(model, IMAGES, MASKS)
    assert list(without.scores)[:-2] == agop.methods.runnable(None)
    assert {"agop-weighted", "agop-global", "expected-gradients"} <= set(agop.methods.names()) - set(without.scores)
    assert list(without.scores["vanilla"]) == metrics.default_names()


def test_references_are_for_methods_and_metrics(model, prior):
    references = zoo.images(8, seed=9)
    scores = evaluate(model, methods="expected-gradients", metrics=["energy", "srg"], references=references).scores
    maps = agop.explain(model, IMAGES, "expected-gradients", references=references)
    assert torch.equal(scores["expected-gradients"]["energy"], metrics.energy(maps, MASKS))
    expected = metrics.srg(model, IMAGES, maps, references=references)
    torch.testing.assert_close(scores["expected-gradients"]["srg"], expected)
    expected = agop.explain(model, IMAGES, "agop-expected", prior, references=references)
    scores = evaluate(model, methods="agop-expected", metrics="energy", prior=prior, references=references).scores
    torch.testing.assert_close(scores["agop-expected"]["energy"], metrics.energy(expected, MASKS))


def test_controls_are_scored_beside_the_methods(model, tmp_path):
    """One mask for all images: only the mean mask shows that a map of it says nothing about the model."""
    evaluation = evaluate(model, metrics=["iou", "energy"])
    assert list(evaluation.scores) == ["vanilla", "centre", "mean-mask"]
    assert (evaluation.scores["mean-mask"]["energy"] == 1).all()
    assert list(evaluate(model, controls=False).scores) == ["vanilla"]
    maps = {name: evaluation.gallery.maps[name] for name in CONTROLS}
    assert all((stack == stack[0]).all() for stack in maps.values())
    assert np.array_equal(maps["mean-mask"][0], MASKS.float().mean(0))
    assert np.allclose(maps["centre"], np.flip(maps["centre"], (1, 2)))
    assert maps["centre"][0].argmax() in (5 * 12 + 5, 5 * 12 + 6, 6 * 12 + 5, 6 * 12 + 6)
    evaluation.save(tmp_path / "run")
    run_checked("report", "run", folder=tmp_path)
    page = (tmp_path / "run" / "index.html").read_text()
    assert "the mean mask of the evaluated images" in page
    assert "mean mask of the training data" not in page


def test_undefined_scores_are_counted_with_their_reason(model):
    rows = evaluate(model, ONE_EMPTY, metrics=["energy", "deletion"]).rows()
    assert [row["method"] for row in rows] == ["vanilla"] * 2 + ["centre"] * 2 + ["mean-mask"] * 2
    assert (rows[0]["n"], rows[0]["undefined"], rows[1]["n"]) == (5, {"mask is empty": 1}, 6)
    row = evaluate(model, torch.zeros_like(MASKS), metrics="energy").rows()[0]
    assert (row["value"], row["n"]) == (None, 0)


def test_table_shows_the_accuracy_and_the_number_of_undefined_scores(model):
    evaluation = evaluate(model, ONE_EMPTY, ["vanilla", "random"], labels=LABELS)
    *_, accuracy_line, last = repr(evaluation).splitlines()
    assert accuracy_line == f"accuracy {accuracy(model):.3f}"
    assert last == "scores of 1 of 6 samples are undefined (mask is empty: 1)"
    assert repr(evaluation) == str(evaluation)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.zeros(6, 2, dtype=torch.long)}, "labels have shape"),
        ({"labels": torch.rand(6)}, "labels contains fractions"),
        ({"masks": MASKS[:2]}, r"masks have shape .*: pass one mask per image, \("),
        ({"masks": MASKS[:, None]}, r"masks have shape .*: pass one mask per image, \("),
        ({"masks": -MASKS.int()}, "signed=True"),
        ({"methods": []}, "no methods to compare"),
        ({"methods": ["vanilla", "expected-gradients"]}, "expected-gradients needs reference images"),
        ({"metrics": []}, "no metrics"),
        ({"output": "odds"}, "no output is named 'odds': did you mean 'log_odds'"),
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


def rows_of(folder):
    lines = [
        json.loads(line) for name in ("rows", "timings") for line in (folder / f"{name}.jsonl").read_text().splitlines()
    ]
    return {(line["method"], line["metric"]): line["value"] for line in lines}


def test_evaluation_is_saved_as_a_run_with_its_scores_and_samples(model, prior, tmp_path):
    evaluation = evaluate(
        model, methods=["vanilla", "agop-global"], metrics=["iou", "deletion"], prior=prior, labels=LABELS, steps=7
    )
    evaluation.save(tmp_path / "run", "mine")
    cell, rows = tmp_path / "run" / "cells" / "mine-given-000", rows_of(tmp_path / "run")
    samples = load_file(cell / "scores.safetensors")
    for method in ("vanilla", "agop-global"):
        assert torch.equal(samples[f"true/{method}/iou"], evaluation.scores[method]["iou"])
        assert rows[method, "iou"] == pytest.approx(float(evaluation.scores[method]["iou"].nanmean()))
        assert rows[method, "milliseconds"] == evaluation.milliseconds[method]
    assert rows["model", "accuracy"] == accuracy(model)
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert "set to 0 in 7 steps" in about["metrics"]["deletion"]["what"]
    assert torch.equal(agop.AGOP.load(cell / "agop.safetensors").diagonal, prior.diagonal)
    assert "agop-global" in run_checked("report", "run", "--format", "markdown", folder=tmp_path).stdout


def test_gallery_has_a_dozen_evenly_spaced_samples(model, tmp_path):
    """Images in class folders are sorted by class: the first dozen would all be of one."""
    images, labels = zoo.images(36), torch.arange(3).repeat_interleave(12)
    masks = torch.rand(36, 12, 12, generator=torch.Generator().manual_seed(0)) > 0.5
    evaluation = agop.evaluate(model, images, masks, ["vanilla"], metrics=["iou"], labels=labels)
    places = evaluation.gallery.places.tolist()
    assert (len(places), places[0], places[-1]) == (12, 0, 35)
    assert {after - before for before, after in itertools.pairwise(places)} == {3, 4}
    evaluation.save(tmp_path / "run")
    gallery, saved = evaluation.gallery, type(evaluation.gallery).load(tmp_path / "run" / "cells" / "own-given-000")
    assert gallery.places.tolist() == saved.places.tolist() == places
    assert gallery.labels.tolist() == saved.labels.tolist() == labels[places].tolist()
    assert gallery.labels.tolist().count(1) == 4
    assert gallery.predicted.tolist() == saved.predicted.tolist() == model(images)[places].argmax(1).tolist()
    assert (gallery.masks["true"] == masks[places].numpy()).all()
    assert (gallery.maps["vanilla"] == agop.explain(model, images, "vanilla")[places].numpy()).all()
    assert (saved.maps["vanilla"] == gallery.maps["vanilla"]).all()
    few = images[places].numpy().transpose(0, 2, 3, 1)
    expected = (255 * (few - few.min()) / (few.max() - few.min())).round()
    assert np.abs(gallery.pictures - expected).max() <= 1


def test_folder_that_is_not_an_evaluation_is_not_overwritten(model, tmp_path):
    evaluation = evaluate(model)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="choose another folder"):
        evaluation.save(tmp_path)
    evaluation.save(tmp_path / "run", "one")
    evaluation.save(tmp_path / "run", "two")  # replaces the evaluation
    assert [path.name for path in (tmp_path / "run" / "cells").iterdir()] == ["two-given-000"]
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    (tmp_path / "run" / "spec.json").write_text(json.dumps(spec | {"benchmark": "xai-tris"}))
    with pytest.raises(InputError, match="isn't an evaluation: choose another folder"):
        evaluation.save(tmp_path / "run")


def test_interrupted_save_keeps_the_earlier_evaluation(model, tmp_path, monkeypatch):
    predicted = model(IMAGES).argmax(1)
    evaluate(model, labels=(predicted + 1) % 3).save(tmp_path / "run")
    evaluation = evaluate(model, labels=predicted)
    with monkeypatch.context() as patch:
        patch.setattr(type(evaluation.gallery), "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            evaluation.save(tmp_path / "run")
    assert rows_of(tmp_path / "run")["model", "accuracy"] == 0.0
    evaluation.save(tmp_path / "run")
    assert rows_of(tmp_path / "run")["model", "accuracy"] == 1.0


def test_time_of_the_first_pass_is_not_counted(model, monkeypatch):
    """Compiled models and fresh libraries are slow at the first pass. The clock advances only with the model."""
    passes = [1.0, *[0.006] * 100]
    clock = []
    model.register_forward_pre_hook(lambda *_: clock.append(passes[len(clock)]))
    monkeypatch.setattr(time, "perf_counter", lambda: sum(clock))
    assert evaluate(model).milliseconds["vanilla"] == pytest.approx(6 / len(IMAGES))


def test_layer_is_for_the_methods_that_use_the_last_block(model):
    scores = evaluate(model, methods=["gradcam", "activation-norm"], layer="body.2").scores
    for name, layer in (("gradcam", "body.2"), ("activation-norm", None)):
        maps = agop.explain(model, IMAGES, name, layer=layer)
        torch.testing.assert_close(scores[name]["iou"], metrics.iou(maps, MASKS))


def test_log_odds_scores_their_maps_and_says_so(model):
    prior = agop.fit(model, [IMAGES], only_correct=False, progress=False, output="log_odds")
    result = evaluate(model, MASKS, ["vanilla", "agop-weighted"], "energy", prior=prior, output="log_odds")
    for name, values in result.scores.items():
        if name not in CONTROLS:
            maps = agop.explain(model, IMAGES, name, prior, output="log_odds")
            torch.testing.assert_close(values["energy"], metrics.energy(maps, MASKS))
            assert not torch.allclose(maps, agop.explain(model, IMAGES, "vanilla"), rtol=1e-2)
    assert "Gradients are those of log_odds" in repr(result)
    assert "log_odds" not in repr(evaluate(model))


def test_image_with_nan_is_undefined_and_the_others_are_scored(model):
    options = {"methods": ["vanilla", "smoothgrad"], "metrics": None, "controls": False}
    expected = evaluate(model, MASKS[1:], images=IMAGES[1:], **options)
    broken = IMAGES.clone()
    broken[0, 0, 0, 0] = torch.nan
    with pytest.warns(AGOPWarning, match="sample 0"):
        table = evaluate(model, images=broken, **options)
    for name in ("vanilla", "smoothgrad"):
        for metric, scores in table.scores[name].items():
            assert scores[0].isnan(), (name, metric)
            torch.testing.assert_close(scores[1:], expected.scores[name][metric])
    rows = [row for row in table.rows() if row["metric"] == "energy"]
    assert all(row["n"] == 5 and list(row["undefined"].values()) == [1] for row in rows)


def test_nan_raises_if_asked_and_an_image_without_a_prediction_is_not_correct(model):
    broken = IMAGES.clone()
    broken[0, 0, 0, 0] = torch.nan
    with pytest.raises(GradientError, match="nan='skip'"):
        evaluate(model, images=broken, nan="raise")
    with pytest.raises(InputError, match="nan is 'ignore': give 'raise' or 'skip'"):
        evaluate(model, nan="ignore")
    with pytest.warns(AGOPWarning, match="sample 0"):
        result = evaluate(model, images=broken, labels=[0, *(model(IMAGES[1:]).argmax(1) + 1) % 3])
    assert result.accuracy == 0


class Counted(agop.methods.Method):
    """A method whose calls are counted by name. Ctrl-C interrupts those in `stopped`."""

    calls, stopped = Counter(), set()

    def __init__(self, name):
        self.name = name

    def maps(self, job):
        Counted.calls[self.name] += 1
        if self.name in self.stopped:
            raise KeyboardInterrupt
        return job.images.abs().sum(1)


@pytest.mark.filterwarnings("ignore:the prior comes from a model")
@pytest.mark.parametrize("changed", [None, "images", "masks", "target", "weights", "metrics"])
def test_same_call_resumes_after_an_interruption_and_another_one_starts_anew(model, prior, tmp_path, changed):
    Counted.stopped.add("second")
    methods = Counted("first"), Counted("second")
    options = {"out": tmp_path / "run", "target": 1}
    with pytest.raises(KeyboardInterrupt):
        evaluate(model, methods=methods, prior=prior, **options)
    Counted.stopped.clear()
    before = Counted.calls["first"]
    if changed == "weights":
        torch.nn.init.normal_(model.body[0].weight)
    others = {"images": IMAGES + 1, "masks": ~MASKS, "target": 2, "metrics": ["iou", "energy"]}
    options |= {changed: others[changed]} if changed in others else {}
    result = evaluate(model, methods=methods, batch_size=2, prior=replace(prior), **options)
    assert (Counted.calls["first"] == before) == (changed is None)
    assert list(result.scores) == ["first", "second", *CONTROLS]
    del options["out"]
    fresh = evaluate(model, methods=methods, **options)
    torch.testing.assert_close(result.scores, fresh.scores, rtol=0, atol=0)
    assert (result.rows(), result.undefined) == (fresh.rows(), fresh.undefined)
    assert rows_of(tmp_path / "run")["first", "iou"] == result.rows()[0]["value"]
    assert not (tmp_path / "run" / ".agop-unfinished").exists()


def test_progress_names_the_method_and_folders_of_others_are_refused_first(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    evaluate(model, methods=["vanilla", "sobel"])
    assert "evaluating sobel" in capsys.readouterr().err
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="choose another folder"):
        evaluate(model, out=tmp_path)


@pytest.fixture(scope="module")
def large():
    """Twenty images with masks in different places; a few are empty."""
    model, images = zoo.build("plain"), zoo.images(20)
    masks = torch.zeros(20, 12, 12, dtype=torch.bool)
    for place, mask in enumerate(masks[:-3]):
        mask[place % 4 : place % 4 + 4, 3:7] = True
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    return agop.evaluate(model, images, masks, prior=prior, metrics=["iou", "energy", "deletion"], layer="body.0")


def test_means_intervals_and_marks_are_those_of_the_report(large, tmp_path):
    large.save(tmp_path / "run")
    run_checked("report", "run", folder=tmp_path)
    page = (tmp_path / "run" / "index.html").read_text()
    cell = r'title="(\[[^]]*\])[^"]*"><span class="mean">(\d\.\d{3})</span>(?:<span class="mark"> (.)</span>)?</td>'
    squares = defaultdict(list)
    for method, row in re.findall(r'<tr data-method="([^"]*)">\s*<th scope="row">(.*?)</tr>', page, re.DOTALL):
        squares[method] += [(mean, interval, mark) for interval, mean, mark in re.findall(cell, row)]
    methods, lines = list(large.scores), str(large).splitlines()
    for method in methods:
        (line,) = (line for line in lines if line.startswith(f"{method} "))
        printed = re.findall(r"(\d\.\d{3}) (\[[^]]*\])(?: ([★≈▲]))?", line)
        assert printed == squares[method]
        assert len(printed) == 3


def test_table_shows_directions_the_number_of_images_and_what_the_marks_mean(large):
    lines = str(large).splitlines()
    assert lines[0] == "means over images (N = 20) with 95 % intervals"
    assert re.search(r"mIoU +Energy-GT +Del ↓ +ms", lines[1])
    assert "★ best method" in lines
    assert "↓ lower is better" in lines
    assert any(line.startswith("≈ not significantly different from it") for line in lines)
    (controls,) = (line for line in lines if line.startswith("controls, which don't depend on the model: "))
    independent = set(controls.partition(": ")[2].split(", "))
    assert independent == {"random", "input", "sobel", "laplace", "centre", "mean-mask"}
    assert "controls, which depend on the model in part: activation-norm" in lines


def test_wide_table_is_split_by_columns(model):
    lines = str(evaluate(model, metrics=None)).splitlines()
    assert max(map(len, lines)) <= 120
    assert sum(line.startswith("vanilla ") for line in lines) == 2
    labels = [agop.metrics.get(name).label for name in agop.metrics.default_names()]
    assert all(sum(label in line.split() for line in lines) == 1 for label in labels)


def test_one_image_has_no_intervals_and_an_undefined_score_is_a_dash(model):
    lines = str(evaluate(model, 0 * MASKS[:1], metrics=["iou", "deletion"], images=IMAGES[:1])).splitlines()
    assert lines[0] == "means over images (N = 1) with 95 % intervals"
    assert re.fullmatch(r"vanilla +– +0\.\d{3} ★ +\S+", lines[2])
