"""Cells with grids: what is scored on them, and what the report shows."""

from functools import partial

import pytest

from agop import scenarios
from agop.bench.cell import run_cells
from agop.bench.run_folder import begin
from agop.report.formats import registry
from agop.report.page.gallery_view import gallery_view
from agop.report.run import Run
from agop.runs.spec import RunSpec
from agop.scenarios import Recipe, Scenario, Split
from tests.unit.evaluating.test_grid import IMAGES, LABELS, MASKS, SIDE, ChannelEnergy

METHODS = ("vanilla", "sobel", "centre", "agop-weighted", "integrated-gradients@mean", "expected-gradients:samples=3")
METRICS = ("energy", "pointing_game", "average_precision", "deletion")


def splits(background, seed, masks):
    split = Split(IMAGES, LABELS, MASKS)
    return split, split, split


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run one cell with a network that needs no training."""

    def finished_run(grids=7, scale=1.0, metrics=METRICS, images=20):
        recipe = Recipe(epochs=1, batch=60, learning_rate=1e-6, snapshot_every=None)
        network = partial(ChannelEnergy, scale)
        scenario = Scenario("squares", "own", splits, network, None, ("plain",), recipe=recipe, grids=grids)
        monkeypatch.setitem(scenarios.base.registry._plugins, "squares", scenario)
        spec = RunSpec("own", ("squares",), ("plain",), 1, METHODS, metrics, epochs=1, test_images=images, steps=2)
        begin(spec, tmp_path)
        fractions = []
        run_cells(spec, spec.cells(), tmp_path, fractions.append)
        assert fractions == sorted(fractions)
        assert fractions[-1] <= 1 + 1e-9
        return Run(tmp_path)

    return finished_run


def scored(run, kind):
    """Methods and metrics with rows of this kind of masks."""
    rows = [row for row in run.rows if row["masks"] == kind and row["method"] not in ("model", "masks")]
    return {row["method"] for row in rows}, {row["metric"] for row in rows}


def test_cell_has_rows_of_the_grids_after_those_of_its_test_images(run):
    finished = run()
    assert finished.kinds == ["true", "grid cell", "grid object"]
    on_grids = set(METHODS) - {"centre"}
    assert scored(finished, "true") == (set(METHODS), set(METRICS))
    assert scored(finished, "grid cell") == (on_grids, {"energy", "pointing_game"})
    assert scored(finished, "grid object") == (on_grids, {"average_precision"})
    rows = {(row["masks"], row["method"], row["metric"]): row for row in finished.rows}
    assert rows["grid cell", "vanilla", "energy"]["value"] == 1
    assert rows["grid cell", "sobel", "energy"]["value"] == pytest.approx(0.25)
    assert rows["grid object", "agop-weighted", "average_precision"]["value"] == 1
    assert rows["grid cell", "vanilla", "energy"]["n"] == 7
    # The milliseconds are those of the test images.
    assert [row["method"] for row in finished.timings] == list(METHODS)
    assert {row["n"] for row in finished.timings} == {20}


def test_report_has_a_table_for_each_kind_and_the_gallery_no_scores_of_grids(run):
    finished = run()
    text = registry.get("markdown")(finished)
    for kind in ("grid cell", "grid object"):
        assert f"## squares / plain, {kind} masks, accuracy 1.000" in text
    view = gallery_view(finished, "squares", "plain")
    assert (view["height"], view["width"]) == (SIDE, SIDE)
    assert list(view["scores"]) == ["true"]
    for name in registry.names():
        assert registry.get(name)(finished)


def test_choice_of_correct_images_does_not_apply_to_grids(run):
    finished = run(grids=15, images=10)
    for kind, metric in (("grid cell", "energy"), ("grid object", "average_precision")):
        every, correct = (
            view.values("squares", "plain", "agop-weighted", metric, kind)
            for view in (finished, finished.with_correct_images())
        )
        assert correct == pytest.approx(every)


def test_only_metrics_of_the_run_are_scored(run):
    finished = run(metrics=("energy", "deletion"))
    assert finished.kinds == ["true", "grid cell"]
    assert scored(finished, "grid cell")[1] == {"energy"}


def test_too_few_confident_images_are_the_reason_of_rows_without_a_value(run):
    finished = run(scale=0.01)
    (row,) = (r for r in finished.rows if r["masks"] == "grid object" and r["method"] == "vanilla")
    assert (row["value"], row["n"]) == (None, 0)
    assert row["undefined"] == {"too few images are classified correctly with confidence": 7}
    assert "grid cell" not in registry.get("markdown")(finished)


def test_scenarios_have_grids_only_if_they_say_so(run):
    assert run(grids=0).kinds == ["true"]
    assert {name for name in scenarios.names() if scenarios.get(name).grids} == set(scenarios.names("composite"))
