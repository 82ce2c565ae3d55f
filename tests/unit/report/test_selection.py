"""Which networks, images and masks count: runs of two networks whose scores are known."""

import pytest

from agop.errors import InputError
from agop.report.advice import advice
from agop.report.claims import check, remarks
from agop.report.claims.srg import spearman
from agop.report.formats import registry
from agop.report.image_choice import image_choices
from agop.report.published import comparisons, published
from agop.report.score_tables import tables
from tests.report_runs import write_evaluation, write_networks

RANKS = {"vanilla": 0.2, "integrated-gradients": 0.5, "smoothgrad": 0.8}
PLACE = ("linear", "uncorrelated")


def scores(cell, kind, method, metric):
    """By default SRG ranks the methods as AP does with own masks, and in the opposite order with union masks."""
    value = 1 - RANKS[method] if kind == "union" else RANKS[method]
    return [value + 0.01 * cell.seed, value, value, 0.0]


def all_correct(cell):
    return [1, 1, 1, 1]


def test_networks_that_did_not_learn_are_excluded_visibly(tmp_path):
    def learned(cell):
        return float(cell.scenario != "linear" or cell.seed != 2)

    run = write_networks(tmp_path, scores, all_correct, learned)
    assert list(run.values(*PLACE, "vanilla", "average_precision")) == [0, 1, 3]
    assert list(run.values("linear-mlp", "uncorrelated", "vanilla", "average_precision")) == [0, 1, 2, 3]
    assert list(run.with_all_networks().values(*PLACE, "vanilla", "average_precision")) == [0, 1, 2, 3]
    assert "not learned, 1 of 4 seeds" in tables(run)[0].title
    [sentence] = [remark for remark in remarks(run) if remark.startswith("Not learned")]
    assert "linear / uncorrelated, 1 of 4 seeds (accuracy 1.000)" in sentence
    assert sentence in registry.get("markdown")(run)
    assert "linear-mlp" not in sentence


def test_a_place_where_nothing_was_learned_has_no_table_but_is_named(tmp_path):
    run = write_networks(tmp_path, scores, all_correct, lambda cell: float(cell.scenario != "linear"))
    assert {table.scenario for table in tables(run)} == {"linear-mlp"}
    assert "linear / uncorrelated, 4 of 4 seeds" in " ".join(remarks(run))
    for name in registry.names():
        assert registry.get(name)(run)


def test_correct_images_are_those_that_all_networks_of_a_task_classify_correctly(tmp_path):
    def correct(cell):
        return [1, 1, 0, 1] if cell.scenario == "linear" else [1, 0, 1, cell.seed != 3]

    def score(cell, kind, method, metric):
        return [0.1, 0.2, 0.4, 0.8]

    run = write_networks(tmp_path, score, correct)
    selected = run.with_correct_images()
    for scenario in ("linear", "linear-mlp"):
        values = selected.values(scenario, "uncorrelated", "vanilla", "average_precision")
        assert list(values.values()) == pytest.approx([0.45, 0.45, 0.45, 0.1])
        assert run.values(scenario, "uncorrelated", "vanilla", "average_precision")[0] == pytest.approx(0.375)
    metric, places = image_choices(run)
    every, correct_only = places["linear / uncorrelated"]["vanilla"]
    assert (metric, every.mean, correct_only.mean) == ("average_precision", 0.375, pytest.approx(0.3625))
    assert "only those that all networks classify correctly" in registry.get("markdown")(selected)


def test_a_network_that_did_not_learn_does_not_choose_the_images(tmp_path):
    run = write_networks(
        tmp_path, lambda *_: [0.1, 0.2, 0.4, 0.8], lambda cell: [1, 1, 1, 1] if cell.scenario == "linear" else [0] * 4,
        learned=lambda cell: float(cell.scenario == "linear"),
    )  # fmt: skip
    values = run.with_correct_images().values(*PLACE, "vanilla", "average_precision")
    assert list(values.values()) == pytest.approx([0.375] * 4)


def test_images_are_selected_even_if_the_first_seed_has_no_score(tmp_path):
    def score(cell, kind, method, metric):
        return None if (cell.seed, method) == (0, "vanilla") else [0.1, 0.2, 0.4, 0.8]

    run = write_networks(tmp_path, score, lambda cell: [1, 0, 0, 0])
    values = run.with_correct_images().values(*PLACE, "vanilla", "average_precision")
    assert values == {1: pytest.approx(0.1), 2: pytest.approx(0.1), 3: pytest.approx(0.1)}


def test_runs_that_do_not_record_correct_images_say_so(tmp_path):
    run = write_evaluation(tmp_path, {"vanilla": [0.1, 0.2]})
    assert image_choices(run)[1] == {}
    with pytest.raises(InputError, match="report all images"):
        run.with_correct_images()


def test_claims_are_checked_under_both_ground_truths(tmp_path):
    run = write_networks(tmp_path, scores, all_correct)
    claim = next(claim for claim in check(run) if "fill: pixels of training images" in claim.claim)
    assert claim.verdicts == {"own": "holds", "union": "fails"}
    assert claim.evidence == {"own": "linear 1.000 [1.000, 1.000]", "union": "linear -1.000 [-1.000, -1.000]"}
    assert claim.verdict == "holds (own), fails (union)"
    [sentence] = [remark for remark in remarks(run) if "depend on the ground truth" in remark]
    assert claim.claim in sentence


def test_equal_kinds_of_masks_have_one_table(tmp_path):
    def equal(cell, kind, method, metric):
        return scores(cell, "own" if cell.scenario == "linear" else kind, method, metric)

    run = write_networks(tmp_path, equal, all_correct)
    assert [place[::2] for place in run.places] == [("linear", "own"), ("linear-mlp", "own"), ("linear-mlp", "union")]
    assert "own and union masks" in tables(run)[0].title
    assert "own masks" in tables(run)[1].title


def test_published_values_stand_beside_ours_with_the_same_masks_and_images(tmp_path):
    def correct(cell):
        return [1, 0, 0, 0]

    run = write_networks(tmp_path, scores, correct)
    lines = {(line.scenario, line.method): line for line in comparisons(run)}
    assert set(lines) == {(s, m) for s in ("linear", "linear-mlp") for m in ("vanilla", "integrated-gradients")}
    line = lines["linear-mlp", "integrated-gradients"]
    assert line.published == published()["figures"]["mlp"]["uncorrelated"]["integrated-gradients"]["linear"] == 0.86
    assert line.ours.mean == pytest.approx(0.5 + 0.015)
    assert line.difference == pytest.approx(0.515 - 0.86)
    assert f"| 0.86 | {0.515 - 0.86:+.2f} |" in registry.get("markdown")(run)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3], [10, 20, 15], 0.5),
        ([1, 2, 3], [3, 2, 1], -1),
        ([1, 1, 2], [5, 6, 7], 3**0.5 / 2),
        ([1, 1], [1, 2], 0),
    ],
)
def test_spearman(a, b, expected):
    assert spearman(a, b) == pytest.approx(expected)


@pytest.mark.parametrize(("hits", "doubted"), [([1, 0, 1, 0], True), ([1, 1, 1, 0], False)])
def test_scores_of_networks_at_chance_are_doubted(tmp_path, hits, doubted):
    """A smoke test trains for two epochs, but its report looks like any other."""
    run = write_networks(tmp_path, scores, lambda cell: hits)
    assert ("The networks are at chance (accuracy 0.50)" in advice(run)) is doubted
