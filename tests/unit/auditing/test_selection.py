"""Selection: which methods are recommended, from scores made up for the test."""

import json
import math

import pytest
import torch

from agop.auditing.judging import Judged
from agop.auditing.selection import Selection
from agop.evaluating.sanity_table import Sanity

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


@pytest.mark.parametrize("name", ["mine", "sobel"])
def test_a_map_that_is_independent_of_the_weights_is_never_recommended(name):
    chosen = selection(judged(name, 0.9, correlation=0.97), judged("a", 0.4))
    assert chosen.best == ("a",)
    assert ("Not considered: mine" in chosen.recommendation) == (name == "mine")


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


def test_a_method_with_scores_for_few_images_does_not_compete():
    chosen = selection(judged("a", 0.9, undefined=13), judged("b", 0.4))
    assert chosen.best == ("b",)


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
