"""audit() on drawn images: a planted pattern is found, nothing in a model trained without it; two models; files."""

import csv
import html
import importlib.util
import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

import agop
from agop.errors import AGOPWarning, InputError, ModelError, PriorError
from tests import shortcuts

NAMES = ("bar", "=pole", "square")
TRUTH = torch.zeros(shortcuts.SIDE, shortcuts.SIDE, dtype=torch.bool)
TRUTH[shortcuts.PLACE] = True


def audited(model, images, **options):
    return agop.audit(model, *images, per_class=80, progress=False, **options)


def trained_and_audited(share, plant="patch", **options):
    images = shortcuts.drawn(360, share, plant=plant)
    return audited(shortcuts.trained(*images), images, **options)


def assert_is_the_patch(finding):
    assert (finding.kind, finding.class_index) == ("region", shortcuts.PLANTED)
    assert (finding.region & TRUTH).sum() >= 0.5 * (finding.region | TRUTH).sum()


@pytest.fixture(scope="module")
def images():
    return shortcuts.drawn(360, 0.7)


@pytest.fixture(scope="module")
def cheating(images):
    return shortcuts.trained(*images)


@pytest.fixture(scope="module")
def honest():
    """The same network, trained on images without the patch."""
    return shortcuts.trained(*shortcuts.drawn(360, 0.0))


@pytest.fixture(scope="module")
def planted(cheating, images):
    return audited(cheating, images, class_names=NAMES)


@pytest.fixture(scope="module")
def clean(honest):
    return audited(honest, shortcuts.drawn(360, 0.0))


def untrained(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(shortcuts.SIDE**2, classes)).eval()


def biased(favourite, classes=3):
    """A model that predicts one class for all images."""
    model = untrained(classes)
    model[1].weight.data.zero_()
    model[1].bias.data[favourite] = 5
    return model


def batches(images, labels):
    return list(zip(images.split(30), labels.split(30), strict=True))


# --- Findings


def test_planted_patch_is_found(planted, cheating):
    (finding,) = planted.findings
    assert_is_the_patch(finding)
    low, high = finding.interval
    assert finding.control < low < finding.effect < high
    assert finding.prevalence == pytest.approx(0.7, abs=0.15)
    for words in ("region at the bottom left", "class =pole", "no longer recognised"):
        assert words in finding.sentence
    # If images without the pattern aren't recognised, it may be the object itself.
    recognised = cheating(finding.ranked).argmax(dim=1) == shortcuts.PLANTED
    assert torch.equal(finding.contained.recognised, recognised)
    contains = finding.contained.contains
    having, lacking = (100 * float(recognised[part].double().mean()) for part in (contains, ~contains))
    assert f"{having:.0f} % of these and {lacking:.0f} % of the others are recognised" in finding.sentence


def test_patch_in_all_images_of_a_class_is_found():
    """The images of the class form no two groups: they are compared with those of other classes."""
    (finding,) = trained_and_audited(1.0).findings
    assert_is_the_patch(finding)
    assert finding.prevalence == 1
    assert "is it a part of the object?" in finding.sentence
    assert len(finding.ranked) == 80  # images of the class, none of others


@pytest.mark.parametrize(("plant", "kind"), [("frame", "border"), ("grid", "high frequency")])
def test_planted_property_is_found(plant, kind, tmp_path):
    """Lines also change the levels of an image, so other properties of the class may be found as well."""
    audit = trained_and_audited(0.7, plant)
    assert {finding.class_index for finding in audit.findings} == {shortcuts.PLANTED}
    (finding,) = [finding for finding in audit.findings if finding.kind == kind]
    assert finding.control < finding.interval[0]
    assert finding.prevalence == pytest.approx(0.7, abs=0.15)
    assert finding.to_dict()["region"] is None  # not the box of the whole image
    audit.save(tmp_path)
    (row,) = [row for row in table(tmp_path / "findings.csv") if row["kind"] == kind]
    assert row["top"] == row["right"] == ""


def test_clean_model_has_no_findings_and_says_what_was_tried(clean):
    assert clean.findings == ()
    text = clean.summary()
    assert "No shortcut found." in text
    assert "3 × colour, 3 × border, 3 × high frequency" in text
    assert f"An effect of {clean.detectable:.2f} beyond the controls" in text
    assert {row["stage"] for row in clean.table} <= {"screening", "test"}
    assert all(row["p"] >= 0.05 for row in clean.table if row["stage"] == "test")


def test_all_rows_of_the_table_have_the_same_keys(planted, clean):
    assert len({frozenset(row) for row in (*planted.table, *clean.table)}) == 1
    for row in (*planted.table, *clean.table):
        assert (row["effect"] is None) <= (row["p"] in (None, 1))


@pytest.mark.slow
def test_what_more_images_may_decide_is_listed():
    """Few of 120 images of each class."""
    images = shortcuts.drawn(360, 0.5)
    model, lines = shortcuts.trained(*images), []
    for count in (24, 28, 32):
        audit = agop.audit(model, *images, per_class=count, progress=False, seed=2)
        close = [row for row in audit.table if 0.05 <= (row["p"] or 0) < 0.2 and row["effect"] > row["control"] + 0.05]
        assert len(audit.close) == len(close)
        for line in audit.close:
            assert line.endswith(f"More than {count} images of the class may decide: per_class={2 * count}.")
            assert line in audit.summary().splitlines()
        lines += audit.close
    # Of 16 images in a half, two rows of the checker have nearly the effect of all four.
    assert re.match(r"Close: A [24]×4 region at the bottom left, class 1: effect 0\.", lines[0])


def test_by_default_more_than_200_images_of_a_class_are_used(honest):
    images, labels = shortcuts.drawn(660, 0.0)
    assert agop.audit(honest, images, labels, progress=False).images == 660


def test_same_seed_gives_the_same_audit(clean, honest):
    again = audited(honest, shortcuts.drawn(360, 0.0))
    assert shortcuts.without_times(again) == shortcuts.without_times(clean)


def test_maps_are_not_compared_for_a_model_that_cannot_be_copied():
    images, labels = shortcuts.drawn(90, 0.7)
    model = shortcuts.trained(images, labels, steps=60)
    model.lock = threading.Lock()  # deepcopy raises
    audit = agop.audit(model, images, labels, per_class=20, progress=False)
    assert audit.selection is None
    assert any(note.startswith("maps weren't compared: the model can't be copied") for note in audit.notes)
    assert audit.reliance is not None


# --- Models and classes that can't be judged


def test_model_at_chance_is_reported_first_without_findings():
    audit = agop.audit(untrained(), *shortcuts.drawn(90, 0.0), progress=False)
    assert audit.at_chance
    assert (audit.findings, audit.table) == ((), ())
    assert audit.selection is audit.reliance is None
    assert "hardly better than chance" in audit.summary().splitlines()[0]


def test_swapped_class_folders_are_named(honest):
    images, labels = shortcuts.drawn(180, 0.0)
    keep = labels < 2
    audit = agop.audit(honest, images[keep], 1 - labels[keep], progress=False)
    assert audit.at_chance
    assert "far below chance: nothing was tried; are the class folders swapped?" in audit.notes[0]


def test_model_that_always_predicts_the_largest_class_is_at_chance():
    images, labels = shortcuts.drawn(360, 0.0)
    keep = (labels == 0) | (torch.arange(360) < 60)
    audit = agop.audit(biased(0), images[keep], labels[keep], progress=False)
    assert audit.accuracy > 0.7
    assert audit.at_chance


def test_skipped_classes_are_noted():
    images, labels = shortcuts.drawn(90, 0.0)
    keep = labels.eq(0) | labels.eq(1) | (labels.eq(2).cumsum(dim=0) <= 3)
    audit = agop.audit(biased(0, classes=50), images[keep], labels[keep], progress=False)
    assert [note for note in audit.notes if "skipped" in note] == [
        "class 2 was skipped: it has 3 images, an audit needs 20",
        "classes without images were skipped: 47",
    ]


def test_few_images_of_other_classes_are_noted():
    images, labels = shortcuts.drawn(90, 0.0)
    keep = labels.eq(0) | (torch.arange(90) < 12)
    audit = agop.audit(biased(0), images[keep], labels[keep], progress=False)
    assert "class 0 is hard to judge: there are 8 images of other classes, give 20 or more" in audit.notes


# --- Data that can't be used


def one_of_another_class(labels):
    """All images of class 0 and one of class 1."""
    return (labels == 0) | (torch.arange(len(labels)) == 1)


def with_paths(images, labels, paths):
    return [{"images": images, "labels": labels, "paths": paths}]


def with_value(images, value):
    images = images.clone()
    images[7, 0, 3, 3] = value
    return images


@pytest.mark.parametrize(
    ("data", "labels", "problem"),
    [
        (lambda x, y: x, lambda y: None, "no labels"),
        (lambda x, y: [x], lambda y: None, "no labels"),
        (batches, lambda y: y, "labels are for a tensor"),
        (lambda x, y: x, lambda y: 0 * y, "at least two classes"),
        (lambda x, y: x[one_of_another_class(y)], lambda y: y[one_of_another_class(y)],
         "one class has more than one image"),
        (lambda x, y: x[:20], lambda y: y[:20], "no class has 20 images"),
        (lambda x, y: x, lambda y: y + 1, "label 3 .* out of range"),
        (lambda x, y: [*batches(x, y), (x[:1, :, 2:], y[:1])], lambda y: None, "resize all images"),
        (lambda x, y: [], lambda y: None, "at least two classes"),
        (lambda x, y: 3, lambda y: None, "a tensor .* or a loader"),
        (lambda x, y: with_value(x, torch.nan), lambda y: y, "image 7 has NaN or infinite values"),
        (lambda x, y: with_paths(with_value(x, torch.inf), y, [f"{i}.png" for i in range(90)]), lambda y: None,
         r"image 7\.png has NaN"),
        (lambda x, y: x[:, :, :3, :3], lambda y: y, "images have 3×3 pixels: give at least 4×4"),
        (lambda x, y: with_paths(x, y, ["a", "b"]), lambda y: None, "2 paths and 90 images: give one path per image"),
    ],
)  # fmt: skip
def test_unusable_data_raises(data, labels, problem):
    images, classes = shortcuts.drawn(90, 0.0)
    with pytest.raises(InputError, match=problem):
        agop.audit(untrained(), data(images, classes), labels(classes), progress=False)


def test_bad_arguments_raise():
    data = shortcuts.drawn(90, 0.0)
    with pytest.raises(InputError, match="2 class names, the model has 3"):
        agop.audit(untrained(), *data, class_names=("a", "b"), progress=False)
    with pytest.raises(InputError, match="per_class is 19: give at least 20"):
        agop.audit(untrained(), *data, per_class=19, progress=False)


def test_model_with_nan_outputs_raises():
    model = untrained()
    model[1].bias.data[1] = torch.nan
    with pytest.raises(ModelError, match="outputs are NaN or infinite for 45 of 45 images"):
        agop.audit(model, *shortcuts.drawn(90, 0.0), progress=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_number_formats_and_the_largest_number_of_images(dtype):
    images, labels = shortcuts.drawn(90, 0.0)
    audit = agop.audit(untrained(), images.to(dtype), labels, per_class=20, progress=False)
    assert audit.images == 60


# --- Priors


@pytest.mark.filterwarnings("ignore:the model classified")
def test_prior_of_another_model_warns():
    images, labels = shortcuts.drawn(120, 0.0)
    model = shortcuts.trained(images, labels, steps=120)
    prior = agop.fit(untrained(), batches(images, labels), only_correct=False, per_class=True, progress=False)
    with pytest.warns(AGOPWarning, match="by chance"), pytest.warns(AGOPWarning, match="another model"):
        agop.audit(model, images, labels, prior, per_class=20, progress=False)


def test_prior_of_contrasts_is_used_with_gradients_of_contrasts(recwarn):
    images, labels = shortcuts.drawn(120, 0.0)
    model = shortcuts.trained(images, labels, steps=120)
    prior = agop.fit(model, batches(images, labels), per_class=True, progress=False, output="log_odds")
    agop.audit(model, images, labels, prior, per_class=20, progress=False)
    assert not [str(warning.message) for warning in recwarn if "contrast" in str(warning.message)]


@pytest.mark.filterwarnings("ignore:the model classified")
def test_prior_of_fewer_classes_raises_before_images_are_read():
    images, labels = shortcuts.drawn(60, 0.0)
    prior = agop.fit(untrained(2), [(images, labels % 2)], only_correct=False, per_class=True, progress=False)

    def loader():
        yield images, labels
        raise AssertionError("the data was read")

    with pytest.raises(PriorError, match="prior has 2 classes, the model 3: compute one for this model"):
        agop.audit(untrained(), loader(), prior=prior, progress=False)


# --- Two models


@pytest.fixture(scope="module")
def removed(cheating, honest, images):
    return audited(cheating, images, against=honest)


@pytest.mark.slow
def test_retraining_without_the_patch_removes_the_finding(removed, honest, images):
    (row,) = [row for row in removed.comparison.rows if row.finding is removed.findings[0]]
    assert row.verdict == "removed"
    assert row.effect == removed.findings[0].effect  # the same pairs of images as in the audit
    assert row.difference == pytest.approx(row.other_effect - row.effect)
    low, high = row.interval
    assert low < row.difference < high < 0
    text = f"effect {row.effect:.2f}, in the other model {row.other_effect:.2f}".replace("-", "−")
    assert text in row.sentence
    assert row.sentence.endswith("]: removed.")
    assert row.sentence in removed.summary()
    assert removed.to_dict()["comparison"]["findings"][0]["verdict"] == "removed"
    accuracy = float((honest(images[0]).argmax(1) == images[1]).double().mean())
    assert removed.comparison.accuracy == pytest.approx(accuracy, abs=0.1)
    assert f"The other model: accuracy {100 * removed.comparison.accuracy:.1f} %." in removed.summary()


@pytest.mark.slow
def test_the_reverse_comparison_is_its_negative(cheating, honest, images, removed):
    """A finding of the other model only is new."""
    reverse = audited(honest, images, against=cheating).comparison
    (row,) = [row for row in reverse.rows if row.verdict == "new"]
    before = removed.comparison.rows[0]
    assert row.of_other
    assert torch.equal(row.finding.region, before.finding.region)
    assert (row.effect, row.other_effect) == (before.other_effect, before.effect)
    assert row.difference == pytest.approx(-before.difference)
    assert row.interval == pytest.approx((-before.interval[1], -before.interval[0]))


@pytest.mark.slow
def test_a_model_compared_with_itself_is_unchanged(cheating, images):
    """A finding of both models is tested once."""
    audit = audited(cheating, images, against=cheating)
    assert len(audit.comparison.rows) == len(audit.findings) == 1
    (row,) = audit.comparison.rows
    assert (row.verdict, row.difference, row.interval) == ("unchanged", 0, (0, 0))


@pytest.mark.slow
def test_two_models_without_findings(honest):
    comparison = audited(honest, shortcuts.drawn(360, 0.0, seed=1), against=honest).comparison
    assert comparison.rows == ()
    assert comparison.lines[-1] == "No shortcut found in either model."


def test_other_model_at_chance_is_not_compared(cheating, images):
    audit = audited(cheating, images, against=untrained())
    assert audit.comparison is None
    assert audit.notes[0].startswith("the other model classifies")
    assert "nothing was compared" in audit.notes[0]
    assert audit.findings


def test_other_number_of_classes_raises(cheating, images):
    with pytest.raises(InputError, match="3 and 4 classes"):
        audited(cheating, images, against=untrained(4))


# --- Files


def test_the_example_of_a_finding_is_an_image_before_and_after_with_the_models_probabilities(planted, cheating):
    (finding,) = planted.findings
    (before, after), probabilities = finding.example
    assert torch.equal(before[:, ~finding.region], after[:, ~finding.region])
    assert not torch.equal(before[:, finding.region], after[:, finding.region])
    assert torch.allclose(probabilities, cheating(torch.stack([before, after])).softmax(dim=1).double(), atol=1e-4)
    was, now = probabilities[:, finding.class_index].tolist()
    assert now - was == pytest.approx(finding.effect, abs=0.3)  # the median isn't far from the mean


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def saved(planted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    planted.save(folder)
    return folder


def test_saved_audit_holds_the_findings(planted, saved):
    values = json.loads((saved / "audit.json").read_text())
    tensors, page = load_file(saved / "audit.safetensors"), (saved / "index.html").read_text()
    (finding,) = planted.findings
    assert values["findings"][0]["sentence"] == finding.sentence
    assert len(values["tried"]) == len(planted.table)
    assert torch.equal(tensors["finding0.region"], finding.region)
    assert finding.sentence in page
    assert 'src="http' not in page
    assert finding.sentence in planted._repr_html_()
    assert values["selection"] == planted.selection.to_dict()
    assert values["reliance"] == planted.reliance.to_dict()
    for sentence in (planted.selection.recommendation, *planted.reliance.shared.sentences(NAMES)):
        assert sentence in planted.summary()
        assert html.escape(sentence, quote=False).replace("'", "&#39;") in page


def test_findings_table(planted, saved):
    (row,), (finding,) = table(saved / "findings.csv"), planted.findings
    assert (row["finding"], row["kind"], row["class_index"]) == ("1", "region", "1")
    assert row["class"] == "'=pole"  # not a formula
    assert [float(row[name]) for name in ("effect", "low", "high")] == [finding.effect, *finding.interval]
    area = torch.zeros_like(finding.region)
    area[int(row["top"]) : int(row["bottom"]), int(row["left"]) : int(row["right"])] = True
    assert torch.equal(area, finding.region)
    assert row["sentence"] == finding.sentence


def test_scores_tell_which_pictures_contain_the_patch(saved, images):
    """A picture is the position of an image of the data, and its score is high if the patch is in that image."""
    rows = table(saved / "pictures.csv")
    assert len(rows) == 80  # all images of the class that were used
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert 0 <= scores[-1] < 0.2
    assert scores[0] == 1
    pixels, labels = images
    has_patch = [bool(pixels[int(row["picture"]), 0, 12, 1] == 1) for row in rows]
    assert {int(labels[int(row["picture"])]) for row in rows} == {shortcuts.PLANTED}
    assert len({row["picture"] for row in rows}) == len(rows)
    (finding,) = table(saved / "findings.csv")
    share = np.mean([row["contains"] == "True" for row in rows])
    assert float(finding["prevalence"]) == pytest.approx(share)
    assert f"{100 * share:.0f} % of the =pole images contain it" in finding["sentence"]
    agreement = np.mean([(row["contains"] == "True") == truth for row, truth in zip(rows, has_patch, strict=True)])
    assert agreement >= 0.9


def test_heat_maps_and_their_paths(planted, saved):
    lines = [json.loads(line) for line in (saved / "pictures.jsonl").read_text().splitlines()]
    rows = table(saved / "pictures.csv")
    assert [line["picture"] for line in lines] == [row["picture"] for row in rows]
    assert [line["class"] for line in lines] == ["=pole"] * len(rows)
    for line, saliency in zip(lines, planted.findings[0].maps, strict=True):
        with Image.open(saved / line["heatmap"]) as image:
            assert image.mode == "L"
            levels = np.asarray(image)
        assert levels.max() == 255
        assert np.allclose(levels, 255 * saliency / saliency.max(), atol=0.51)
    assert len(list((saved / "heatmaps").iterdir())) == len(rows)


def test_heat_maps_of_an_earlier_audit_are_removed(planted, tmp_path):
    (tmp_path / "heatmaps").mkdir()
    (tmp_path / "heatmaps/finding7-0001.png").write_bytes(b"old")
    (tmp_path / "heatmaps/mine.png").write_bytes(b"mine")
    planted.save(tmp_path)
    names = {path.name for path in (tmp_path / "heatmaps").iterdir()}
    assert "finding7-0001.png" not in names
    assert "mine.png" in names


def test_page_names_pictures_that_are_not_utf8(planted, tmp_path):
    (finding,) = planted.findings
    contained = replace(finding.contained, pictures=("\udcff.png",) * len(finding.contained.pictures))
    odd = replace(planted, findings=(replace(finding, contained=contained, sentence="\udcff"),))
    odd.save(tmp_path)
    assert (tmp_path / "index.html").exists()


def test_example_for_fiftyone_says_what_is_missing(tmp_path):
    if importlib.util.find_spec("fiftyone") is not None:
        pytest.skip("FiftyOne is installed")
    example = Path(__file__).parents[3] / "examples/with_fiftyone.py"
    result = subprocess.run([sys.executable, example, tmp_path], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "this example needs FiftyOne: pip install fiftyone\n")
