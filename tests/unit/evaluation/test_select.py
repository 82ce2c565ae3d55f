"""select() on drawn images: what is measured for each method, which methods are recommended, errors for bad input."""

import json
import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning, InputError, PriorError, UnknownNameError
from agop.evaluation.sanity import Sanity, rank_correlation
from agop.evaluation.select import Judge, Judged, Priors, Selection
from agop.methods import create
from agop.methods.controls import FixedMap
from tests import shortcuts

SEED = 3


@pytest.fixture(scope="module")
def trained():
    images, labels = shortcuts.drawn(120, 0.7)
    return shortcuts.trained(images, labels, steps=120), images, labels


@pytest.fixture(scope="module")
def judge(trained):
    model, images, labels = trained
    priors = Priors.of(model, images[20:], labels[20:], None, 50, progress=False, per_class=False)
    return Judge(model, images[:10], labels[:10], images[20:], priors, 50, SEED)


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
    both = (scores(select(model, images, labels, methods="vanilla", count=6)) for labels in (None, predicted))
    torch.testing.assert_close(*both)


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
        ({"images": torch.zeros(1, 1, 16, 16)}, InputError, "got 1 image: give at least 8"),
        ({"count": 1}, InputError, "count is 1"),
        ({"methods": []}, InputError, "no methods"),
        ({"methods": ["vanilla", "vanilla"]}, InputError, "vanilla appears twice"),
        ({"methods": ["vanila"]}, UnknownNameError, "did you mean 'vanilla'"),
        ({"methods": ["agop-subspace"]}, PriorError, "no sketch"),
        ({"labels": [0, 1]}, InputError, "labels have shape"),
        ({"labels": torch.full((120,), 3)}, InputError, "label 3 .* out of range"),
        ({"prior": "prior.safetensors"}, PriorError, "prior is a str"),
    ],
)  # fmt: skip
def test_bad_arguments_raise(trained, options, error, problem):
    with pytest.raises(error, match=problem):
        select(trained[0], **{"images": trained[1]} | options)


def test_prior_of_another_model_warns_and_of_another_shape_raises(trained):
    model, images, labels = trained
    linear = nn.Sequential(nn.Flatten(), nn.Linear(256, 3))
    foreign = agop.fit(linear, [(images, labels)], only_correct=False, progress=False)
    with pytest.warns(AGOPWarning, match="another model"):
        select(model, images, labels, foreign, methods="agop-weighted", count=4)
    with pytest.raises(PriorError, match="for images of shape"):
        select(model, images, labels, agop.AGOP(torch.ones(1, 8, 8), 4))


def test_warnings_of_methods_become_notes(trained):
    model, images, labels = trained
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection = select(model, images, labels, methods=["gradcam:layer=5"], count=4)
    assert any("gradcam:layer=5: the map of layer" in note for note in selection.notes)


IMAGES = 24


def judged(name, mean, *, spread=0.02, correlation=0.2, milliseconds=1.0, undefined=0, shift=0):
    """A method whose scores spread around a mean. Another shift gives another order of the images."""
    wave = torch.linspace(-1, 1, IMAGES, dtype=torch.float64).roll(shift)
    scores = mean + spread * wave
    scores[:undefined] = torch.nan
    sanity = Sanity(name, (("all",),), torch.full((1, 4), correlation), correlation == 1)
    return Judged(name, scores, sanity, math.nan, milliseconds)


def selection(*results):
    return Selection((*results, judged("random", 0.0, correlation=1.0, shift=5)), IMAGES, 1.0)


def test_a_method_ahead_of_all_others_is_recommended():
    chosen = selection(judged("b", 0.2, shift=3), judged("a", 0.4), judged("c", 0.3, shift=7))
    assert chosen.best == ("a",)
    assert chosen.recommendation.startswith("Use a: its SRG of 0.40 is significantly above that of all other methods")
    assert [row["method"] for row in chosen.table] == ["a", "c", "b", "random"]
    assert [row["best"] for row in chosen.table] == [True, False, False, False]


def test_methods_that_differ_by_less_than_their_scatter_are_all_recommended():
    chosen = selection(judged("a", 0.40, spread=0.3), judged("b", 0.39, spread=0.3, shift=12), judged("c", 0.01))
    assert chosen.best == ("a", "b")
    assert "Use a or b: their SRG (0.40, 0.39) can't be distinguished on 24 images." in chosen.recommendation


def test_a_cheaper_method_of_the_best_is_named():
    dear = judged("a", 0.40, spread=0.3, milliseconds=50)
    chosen = selection(dear, judged("b", 0.39, spread=0.3, shift=12))
    assert "b costs less than half of a." in chosen.recommendation
    assert chosen.table[0]["gradients"] == 50


@pytest.mark.parametrize(
    "better",
    [judged("mine", 0.9, correlation=0.97), judged("sobel", 0.9, correlation=0.97), judged("b", 0.9, undefined=13)],
    ids=["independent of the weights", "a control", "scores for few images"],
)
def test_some_methods_are_never_recommended(better):
    chosen = selection(better, judged("a", 0.4))
    assert chosen.best == ("a",)
    assert ("Not considered: mine" in chosen.recommendation) == (better.method == "mine")


def test_without_a_map_that_depends_on_the_weights_nothing_is_recommended():
    chosen = selection(judged("mine", 0.9, correlation=1.0))
    assert chosen.best == ()
    assert "no method's maps depend on the model's weights" in chosen.recommendation


@pytest.mark.parametrize(("mean", "spread"), [(0.05, 0.3), (0.005, 0.001)])
def test_methods_that_are_like_random_maps_are_not_recommended(mean, spread):
    """A difference that may be chance, and one that is too small to matter."""
    random = judged("random", 0.0, spread=spread, correlation=1.0, shift=5)
    chosen = Selection((judged("a", mean, spread=spread), random), IMAGES, 1.0)
    assert chosen.best == ()
    assert "not clearly above that of random maps" in chosen.recommendation


def test_methods_equal_to_random_maps_are_rarely_recommended():
    """Seven methods are seven chances to be above random maps: the highest of them is tested at a stricter level."""
    random, names, runs = torch.Generator().manual_seed(0), [*"abcdefg", "random"], 600
    recommended = 0
    for _ in range(runs):
        results = [judged(name, 0.0, correlation=1.0 if name == "random" else 0.2) for name in names]
        scores = 0.1 * torch.randn(len(names), IMAGES, generator=random)
        drawn = (replace(result, scores=own) for result, own in zip(results, scores, strict=True))
        recommended += bool(Selection(tuple(drawn), IMAGES, 1.0).best)
    assert recommended / runs <= 0.025


def test_differences_to_the_best_are_paired():
    """Scores that scatter alike have a constant difference, whose interval has no width."""
    chosen = selection(judged("a", 0.5, spread=0.3), judged("b", 0.4, spread=0.3))
    row = chosen.table[1]
    assert row["behind"]["interval"] == pytest.approx([0.1, 0.1])
    low, high = row["srg"]["interval"]
    assert high - low > 0.1


def test_undefined_values_are_dashes_in_text_and_none_in_json():
    chosen = selection(judged("a", 0.5), judged("b", 0.5, undefined=IMAGES))
    saved = json.loads(json.dumps(chosen.to_dict(), allow_nan=False))
    row = next(row for row in saved["methods"] if row["method"] == "b")
    assert row["srg"] is row["stability"] is row["behind"] is None
    assert "–" in repr(chosen)
    assert repr(chosen).endswith(chosen.recommendation)
    assert saved["recommendation"] == chosen.recommendation


def test_html_escapes_names():
    assert "&lt;b&gt;" in selection(judged("<b>", 0.5))._repr_html_()
