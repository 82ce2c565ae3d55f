"""select() on drawn images: what is measured for each method, and errors for bad input."""

import math
import warnings

import pytest
import torch
from torch import nn

import agop
from agop.auditing.judging import Judge
from agop.auditing.pool import Half
from agop.auditing.priors import Priors
from agop.errors import AGOPWarning, InputError, PriorError, UnknownNameError
from agop.evaluating.controls import FixedMap
from agop.evaluating.rank_correlation import rank_correlation
from agop.methods import create
from tests import shortcuts

SEED = 3


@pytest.fixture(scope="module")
def trained():
    images, labels = shortcuts.drawn(120, 0.7)
    return shortcuts.trained(images, labels, steps=120), images, labels


@pytest.fixture(scope="module")
def judge(trained):
    model, images, labels = trained
    half = Half(images[20:], labels[20:], tuple(map(str, range(20, 120))))
    priors = Priors.of(model, half, None, 50, progress=False, per_class=False)
    return Judge.of(model, images[:10], labels[:10], images[20:], priors, 50, SEED)


def select(model, *arguments, **options):
    return agop.select(model, *arguments, progress=False, **options)


def scores(selection):
    return {result.method: result.scores for result in selection.results}


def test_default_methods_are_compared_and_random_maps_never_win(trained):
    selection = select(*trained, count=8)
    assert [row["method"] for row in selection.table][-1] == "random"
    assert {"agop", "agop-weighted", "gradcam", "vanilla", "expected-gradients"} < set(scores(selection))
    assert "random" not in selection.best
    assert selection.images == 8
    assert all(len(values) == 8 and values.isfinite().all() for values in scores(selection).values())


def test_check_with_random_weights_is_the_last_step_of_sanity(judge):
    """Also for a method with a prior, which stays that of the trained model."""
    for name in ("vanilla", "agop-weighted"):
        ours = judge.judged(name, create(name)).sanity
        prior = judge.priors.whole if create(name).needs_prior else None
        theirs = agop.sanity(judge.model, judge.images[:4], name, prior, judge.targets[:4], steps=1, seed=SEED)
        torch.testing.assert_close(ours.correlations, theirs.correlations)
        assert not ours.model_independent


def test_a_map_that_does_not_use_the_model_is_model_independent(trained):
    selection = select(*trained, methods=["vanilla", FixedMap("mine", torch.rand(16, 16))], count=4)
    independent = {row["method"]: row["model_independent"] for row in selection.table}
    assert independent == {"vanilla": False, "mine": True, "random": True}
    assert "mine" not in selection.best


def test_stability_compares_two_halves_of_the_data_and_two_seeds(judge):
    images, targets = judge.images[:4], judge.targets[:4]

    def correlation(*pairs):
        maps = [agop.explain(judge.model, images, name, prior, targets) for name, prior in pairs]
        return float(rank_correlation(*maps).mean())

    first, second = judge.priors.halves
    expected = {
        "agop-weighted": correlation(("agop-weighted", first), ("agop-weighted", second)),
        "smoothgrad": correlation(("smoothgrad", None), ("smoothgrad:seed=1", None)),
        "agop": correlation(("agop", first), ("agop:seed=1", second)),
        "vanilla": math.nan,
        "gradcam": math.nan,
    }
    measured = {name: judge.judged(name, create(name)).stability for name in expected}
    assert measured == pytest.approx(expected, nan_ok=True)


def test_without_labels_predicted_classes_are_explained(trained):
    model, images, _ = trained
    predicted = model(images).argmax(dim=1)
    ours, theirs = (
        scores(select(model, images, labels, methods="vanilla", count=6)) for labels in (None, predicted)
    )  # fmt: skip
    torch.testing.assert_close(ours, theirs)


def test_a_prior_is_computed_if_there_is_none_and_used_if_there_is_one(trained):
    model, images, labels = trained
    odd = agop.fit(model, [(images[:7], labels[:7])], progress=False)
    own = scores(select(model, images, labels, methods="agop-weighted", count=6))
    other = scores(select(model, images, labels, odd, methods="agop-weighted", count=6))
    assert own["agop-weighted"].isfinite().all()
    assert not torch.equal(own["agop-weighted"], other["agop-weighted"])


def test_same_seed_gives_the_same_scores_and_the_model_is_unchanged(trained):
    model, images, labels = trained
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    first, second = (scores(select(model, images, labels, methods=["vanilla", "gradcam"], count=6)) for _ in range(2))
    assert model.training
    model.eval()
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_methods_that_do_not_suit_the_model_are_skipped_with_a_reason():
    images, labels = shortcuts.drawn(60, 0.0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 3)).eval()
    selection = select(model, images, count=4)
    assert "gradcam" not in scores(selection)
    assert any(note.startswith("gradcam was skipped: ") for note in selection.notes)
    assert any(note in repr(selection) for note in selection.notes)
    with pytest.raises(agop.AGOPError, match="layer"):
        select(model, images, labels, methods=["gradcam:layer=5"], count=4)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"count": 1}, InputError, "count is 1"),
        ({"methods": []}, InputError, "no methods"),
        ({"methods": ["vanilla", "vanilla"]}, InputError, "vanilla appears twice"),
        ({"methods": ["vanila"]}, UnknownNameError, "did you mean 'vanilla'"),
        ({"methods": ["agop-subspace"]}, PriorError, "agop-subspace can't run, the prior has no sketch"),
        ({"labels": [0, 1]}, InputError, "labels have shape"),
        ({"labels": torch.full((120,), 3)}, InputError, "label 3 .* out of range"),
        ({"prior": "prior.safetensors"}, PriorError, "prior is a str"),
    ],
)  # fmt: skip
def test_bad_arguments_raise(trained, options, error, problem):
    model, images, _ = trained
    with pytest.raises(error, match=problem):
        select(model, images, **options)


def test_one_image_is_not_enough(trained):
    with pytest.raises(InputError, match="got 1 image: give at least 8"):
        select(trained[0], trained[1][:1])


def test_prior_of_another_model_warns_and_of_another_shape_raises(trained):
    model, images, labels = trained
    linear = nn.Sequential(nn.Flatten(), nn.Linear(256, 3))
    foreign = agop.fit(linear, [(images, labels)], only_correct=False, progress=False)
    with pytest.warns(AGOPWarning, match="another model"):
        select(model, images, labels, foreign, methods="agop-weighted", count=4)
    small = agop.fit(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), [torch.rand(4, 1, 8, 8)], only_correct=False,
                     progress=False)  # fmt: skip
    with pytest.raises(PriorError, match="for images of shape"):
        select(model, images, labels, small)


def test_warnings_of_methods_become_notes(trained):
    model, images, labels = trained
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection = select(model, images, labels, methods=["gradcam:layer=5"], count=4)
    assert any("gradcam:layer=5: the map of layer" in note for note in selection.notes)
