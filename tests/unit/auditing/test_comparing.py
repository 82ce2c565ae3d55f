"""Comparison of two models: every finding of either is tested on both."""

import math

import pytest
import torch
from torch import nn

import agop
from agop.auditing.comparing import NEW, REDUCED, REMOVED, STRONGER, UNCHANGED, verdict
from agop.auditing.grouping import Rule
from agop.auditing.intervals import Mean
from agop.auditing.proposals import property_proposals
from agop.auditing.trial import Screening, Trial
from agop.errors import InputError
from tests import shortcuts


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


def audited(model, images, **options):
    return agop.audit(model, *images, per_class=80, progress=False, **options)


@pytest.fixture(scope="module")
def removed(cheating, honest, images):
    return audited(cheating, images, against=honest)


@pytest.mark.slow
def test_retraining_without_the_patch_removes_the_finding(removed):
    (row,) = [row for row in removed.comparison.rows if row.finding is removed.findings[0]]
    assert row.verdict == REMOVED
    assert row.effect == removed.findings[0].effect  # the same pairs of images as in the audit
    assert row.difference == pytest.approx(row.other_effect - row.effect)
    low, high = row.interval
    assert low < row.difference < high < 0
    text = f"effect {row.effect:.2f}, in the other model {row.other_effect:.2f}".replace("-", "−")
    assert text in row.sentence
    assert row.sentence.endswith("]: removed.")
    assert row.sentence in removed.summary()
    assert removed.to_dict()["comparison"]["findings"][0]["verdict"] == REMOVED


@pytest.mark.slow
def test_the_reverse_comparison_is_its_negative(cheating, honest, images, removed):
    """A finding of the other model only is new."""
    reverse = audited(honest, images, against=cheating).comparison
    (row,) = [row for row in reverse.rows if row.verdict == NEW]
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
    assert (row.verdict, row.difference, row.interval) == (UNCHANGED, 0, (0, 0))


def test_interval_is_paired(removed, cheating, honest, images):
    """That of the difference is not wider than those of both effects together."""
    (row,) = [row for row in removed.comparison.rows if row.verdict == REMOVED]
    low, high = removed.findings[0].interval
    own = (high - low) / 2
    assert (row.interval[1] - row.interval[0]) / 2 < 2 * own


@pytest.mark.parametrize(
    ("difference", "before", "after", "expected"),
    [
        (-0.6, 0.6, 0.0, REMOVED),
        (-0.3, 0.6, 0.3, REDUCED),
        (0.01, 0.6, 0.61, UNCHANGED),
        (0.045, 0.6, 0.645, UNCHANGED),  # certain, but too small to matter
        (0.3, 0.3, 0.6, STRONGER),
        (0.6, 0.0, 0.6, NEW),
    ],
)
def test_verdicts(difference, before, after, expected):
    (proposal, *_) = property_proposals(0, (16, 16))

    nothing = torch.zeros(0)
    screening = Screening(proposal, nothing, nothing, Rule(None, True), nothing, 5.0, 0.0, 0.0, nothing)

    def trial(effect):
        mean = Mean(effect, 0.01, 100)
        return Trial(screening, mean, 0.0, mean, effect, 0.0, 0.0, nothing, nothing, nothing)

    assert verdict(Mean(difference, 0.02, 100), trial(before), trial(after)) == expected


@pytest.mark.slow
def test_two_models_without_findings(honest):
    images = shortcuts.drawn(360, 0.0, seed=1)
    comparison = audited(honest, images, against=honest).comparison
    assert comparison.rows == ()
    assert comparison.lines[-1] == "No shortcut found in either model."


def test_other_model_at_chance_is_not_compared(cheating, images):
    torch.manual_seed(0)
    other = nn.Sequential(nn.Flatten(), nn.Linear(shortcuts.SIDE**2, 3)).eval()
    audit = audited(cheating, images, against=other)
    assert audit.comparison is None
    assert audit.notes[0].startswith("the other model classifies")
    assert "nothing was compared" in audit.notes[0]
    assert audit.findings


def test_other_number_of_classes_raises(cheating, images):
    other = nn.Sequential(nn.Flatten(), nn.Linear(shortcuts.SIDE**2, 4)).eval()
    with pytest.raises(InputError, match="3 and 4 classes"):
        audited(cheating, images, against=other)


def test_accuracy_of_the_other_model_is_reported(removed, honest, images):
    right = (honest(images[0]).argmax(1) == images[1]).double()
    assert math.isclose(removed.comparison.accuracy, float(right.mean()), abs_tol=0.1)
    assert f"The other model: accuracy {100 * removed.comparison.accuracy:.1f} %." in removed.summary()
