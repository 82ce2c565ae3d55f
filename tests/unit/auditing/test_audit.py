"""audit() on drawn images: it finds a planted patch, and nothing in a model trained without it."""

import csv
import html
import json
import math
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import agop
from agop.auditing.audit import detectable
from agop.auditing.grouping import Rule
from agop.auditing.intervals import quantile
from agop.auditing.proposals import property_proposals
from agop.auditing.regions import overlap
from agop.auditing.result import table_rows
from agop.auditing.trial import Screening
from agop.errors import AGOPWarning, InputError
from tests import shortcuts


def audited(share, plant="patch", **options):
    images, labels = shortcuts.drawn(360, share, plant=plant)
    model = shortcuts.trained(images, labels)
    return agop.audit(model, images, labels, per_class=80, progress=False, **options)


@pytest.fixture(scope="module")
def planted():
    return audited(0.7, class_names=("bar", "pole", "square"))


@pytest.fixture(scope="module")
def clean():
    return audited(0.0)


def test_planted_patch_is_found(planted):
    truth = torch.zeros(shortcuts.SIDE, shortcuts.SIDE, dtype=torch.bool)
    truth[shortcuts.PLACE] = True
    assert [(finding.kind, finding.class_index) for finding in planted.findings] == [("region", shortcuts.PLANTED)]
    (finding,) = planted.findings
    assert overlap(finding.region, truth) >= 0.5
    low, high = finding.interval
    assert finding.control < low < finding.effect < high
    assert finding.prevalence == pytest.approx(0.7, abs=0.15)
    assert "region at the lower left" in finding.sentence
    assert "class pole" in finding.sentence
    assert "no longer recognised" in finding.sentence


def test_finding_says_whether_images_without_the_pattern_are_recognised(planted):
    """If they aren't, the pattern may be the object itself."""
    images, labels = shortcuts.drawn(360, 0.7)
    model = shortcuts.trained(images, labels)
    (finding,) = planted.findings
    contains, ranked = finding.contained.contains, finding.ranked
    recognised = model(ranked).argmax(dim=1) == shortcuts.PLANTED
    assert torch.equal(finding.contained.recognised, recognised)
    having, lacking = (100 * float(recognised[part].double().mean()) for part in (contains, ~contains))
    assert f"{having:.0f} % of these and {lacking:.0f} % of the others are recognised" in finding.sentence


def test_patch_in_all_images_of_a_class_is_found():
    """The images of the class form no two groups: they are compared with those of other classes."""
    audit = audited(1.0, class_names=("bar", "pole", "square"))
    truth = torch.zeros(shortcuts.SIDE, shortcuts.SIDE, dtype=torch.bool)
    truth[shortcuts.PLACE] = True
    (finding,) = audit.findings
    assert (finding.kind, finding.class_index, finding.prevalence) == ("region", shortcuts.PLANTED, 1.0)
    assert overlap(finding.region, truth) >= 0.5
    assert "is it a part of the object?" in finding.sentence
    assert len(finding.ranked) == 80  # images of the class, none of others


@pytest.mark.parametrize(("plant", "kind"), [("frame", "border"), ("grid", "high frequency")])
def test_planted_property_is_found(plant, kind, tmp_path):
    """Lines also change the levels of an image, so other properties of the class may be found as well."""
    audit = audited(0.7, plant)
    findings = audit.findings
    assert {finding.class_index for finding in findings} == {shortcuts.PLANTED}
    (finding,) = [finding for finding in findings if finding.kind == kind]
    assert finding.control < finding.interval[0]
    assert finding.prevalence == pytest.approx(0.7, abs=0.15)
    assert finding.to_dict()["region"] is None  # not the box of the whole image
    audit.save(tmp_path)
    with (tmp_path / "findings.csv").open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["kind"] == kind]
    assert row["top"] == row["right"] == ""


def test_clean_model_has_no_findings_and_says_what_was_tried(clean):
    assert clean.findings == ()
    text = clean.summary()
    assert "No shortcut found." in text
    assert "3 × colour, 3 × border, 3 × high frequency" in text
    assert f"An effect of {clean.detectable:.2f} beyond the controls" in text
    assert {row["stage"] for row in clean.table} <= {"screening", "test"}
    assert all(row["p"] >= 0.05 for row in clean.table if row["stage"] == "test")


def test_tests_without_groups_have_a_row():
    responses = torch.arange(8.0)
    screening = Screening(
        property_proposals(0, (16, 16))[0], torch.arange(8), responses, Rule(None, True), responses > 4, 2.0, 0.5, 4.5,
        torch.arange(4),
    )  # fmt: skip
    examined = SimpleNamespace(tested=[], ps=[], without_groups=[screening], screened=[screening])
    test, screened = table_rows(examined, ["a"])
    assert (test["stage"], test["p"], screened["stage"]) == ("test", 1, "screening")


def test_saved_audit_holds_the_findings(planted, tmp_path):
    planted.save(tmp_path / "audit")
    saved = json.loads((tmp_path / "audit/audit.json").read_text())
    tensors = load_file(tmp_path / "audit/audit.safetensors")
    page = (tmp_path / "audit/index.html").read_text()
    assert saved["findings"][0]["sentence"] == planted.findings[0].sentence
    assert len(saved["tried"]) == len(planted.table)
    assert torch.equal(tensors["finding0.region"], planted.findings[0].region)
    assert planted.findings[0].sentence in page
    assert 'src="http' not in page
    assert planted.findings[0].sentence in planted._repr_html_()


def test_same_seed_gives_the_same_audit(clean):
    assert shortcuts.without_times(audited(0.0)) == shortcuts.without_times(clean)


def test_audit_contains_what_the_model_relies_on_and_which_map_to_trust(planted, tmp_path):
    planted.save(tmp_path)
    saved = json.loads((tmp_path / "audit.json").read_text())
    page = (tmp_path / "index.html").read_text()
    assert saved["selection"] == planted.selection.to_dict()
    assert saved["reliance"] == planted.reliance.to_dict()
    for sentence in (planted.selection.recommendation, planted.reliance.consistency.sentence):
        assert sentence in planted.summary()
        assert html.escape(sentence, quote=False).replace("'", "&#39;") in page


def test_maps_are_not_compared_for_a_model_that_cannot_be_copied():
    images, labels = shortcuts.drawn(90, 0.7)
    model = shortcuts.trained(images, labels, steps=60)
    model.lock = threading.Lock()  # deepcopy raises
    audit = agop.audit(model, images, labels, per_class=20, progress=False)
    assert audit.selection is None
    assert any(note.startswith("maps weren't compared: the model can't be copied") for note in audit.notes)
    assert audit.reliance is not None


def untrained():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(shortcuts.SIDE**2, 3)).eval()


def test_model_at_chance_is_reported_first_without_findings():
    images, labels = shortcuts.drawn(90, 0.0)
    audit = agop.audit(untrained(), images, labels, progress=False)
    assert audit.at_chance
    assert (audit.findings, audit.table) == ((), ())
    assert audit.selection is audit.reliance is None
    assert "hardly better than chance" in audit.summary().splitlines()[0]


def test_class_with_three_images_is_skipped():
    images, labels = shortcuts.drawn(90, 0.0)
    keep = (labels != 2) | (labels.eq(2).cumsum(dim=0) <= 3)
    audit = agop.audit(untrained(), images[keep], labels[keep], progress=False)
    assert "class 2 was skipped: it has 3 images" in audit.summary()


def biased(favourite, classes=3):
    """A model that predicts one class for all images."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(shortcuts.SIDE**2, classes))
    for parameter in model.parameters():
        parameter.data.zero_()
    model[1].bias.data[favourite] = 5
    return model.eval()


def test_model_that_always_predicts_the_largest_class_is_at_chance():
    images, labels = shortcuts.drawn(360, 0.0)
    keep = (labels == 0) | (torch.arange(360) < 60)
    audit = agop.audit(biased(0), images[keep], labels[keep], progress=False)
    assert audit.accuracy > 0.7
    assert audit.at_chance


def test_classes_without_images_are_one_note():
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


@pytest.mark.parametrize(("tests", "donors"), [(1, 5), (10, 5), (10, 50), (100, 50), (20, 1)])
def test_detectable_effect_solves_its_equation(tests, donors):
    effect = detectable(tests, donors)
    reach = quantile(0.05 / tests, max(1, donors - 1)) + 0.84
    assert effect == pytest.approx(0.05 + reach * math.sqrt(effect * (1 - effect) / donors), abs=1e-6)
    assert 0.05 < effect <= 1


def test_page_names_pictures_that_are_not_utf8(planted, tmp_path):
    (finding,) = planted.findings
    contained = replace(finding.contained, pictures=("\udcff.png",) * len(finding.contained.pictures))
    odd = replace(planted, findings=(replace(finding, contained=contained, sentence="\udcff"),))
    odd.save(tmp_path)
    assert (tmp_path / "index.html").exists()


def one_of_another_class(labels):
    """All images of class 0 and one of class 1."""
    return (labels == 0) | (torch.arange(len(labels)) == 1)


def batches(images, labels):
    return list(zip(images.split(30), labels.split(30), strict=True))


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
    ],
)  # fmt: skip
def test_unusable_data_raises(data, labels, problem):
    images, classes = shortcuts.drawn(90, 0.0)
    with pytest.raises(InputError, match=problem):
        agop.audit(untrained(), data(images, classes), labels(classes), progress=False)


def test_number_of_class_names_is_checked():
    with pytest.raises(InputError, match="2 class names, the model has 3"):
        agop.audit(untrained(), *shortcuts.drawn(90, 0.0), class_names=("a", "b"), progress=False)


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
    prior = agop.fit(model, batches(images, labels), per_class=True, progress=False, output="contrast")
    agop.audit(model, images, labels, prior, per_class=20, progress=False)
    assert not [str(warning.message) for warning in recwarn if "contrast" in str(warning.message)]
