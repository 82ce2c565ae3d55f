"""Tables of methods by metrics, and the run behind them."""

import json

import numpy as np
import pytest

from agop.errors import FileError
from agop.report.advice import advice
from agop.report.run import Run
from agop.report.score_tables import tables
from tests.report_runs import write_evaluation, write_xai_tris


def test_tables_have_the_papers_values_and_mark_the_best(tmp_path):
    first, *others = tables(write_xai_tris(tmp_path))
    assert (first.scenario, first.background) == ("linear", "uncorrelated")
    best = {metric: [m for m, cells in first.rows.items() if cells[metric].best] for metric in first.columns}
    assert best["iou"] == ["agop-weighted"]
    assert best["pointing_game"] == ["integrated-gradients"]
    assert best["deletion"] == ["gradcam"]
    assert first.rows["agop-weighted"]["iou"].paper == 0.314
    correlated = next(table for table in others if table.background == "correlated")
    assert correlated.rows["agop-weighted"]["iou"].paper is None


def test_a_score_of_few_samples_is_never_the_best(tmp_path):
    """GradCAM++ beats all methods, but only on the few samples where it has a map at all."""

    def change(row):
        few = row["method"] == "gradcam++" and row["scenario"] == "linear" and row["metric"] == "iou"
        return {"value": 0.99, "n": 4} if few else None

    run = write_xai_tris(tmp_path, change)
    table = next(t for t in tables(run) if (t.scenario, t.background) == ("linear", "uncorrelated"))
    assert table.rows["gradcam++"]["iou"].ours.mean == pytest.approx(0.99)
    assert not table.rows["gradcam++"]["iou"].best
    assert sum(cells["iou"].best for cells in table.rows.values()) >= 1
    assert "gradcam++" not in advice(run).split(";")[0]


def test_other_runs_do_not_cite_the_paper(tmp_path):
    """Even if a scenario has the name of one of the paper's."""
    (table,) = tables(write_evaluation(tmp_path, {"vanilla": np.linspace(0, 1, 100)}))
    assert table.scenario == "linear"
    assert table.rows["vanilla"]["iou"].paper is None


def test_differences_are_paired(tmp_path):
    def change(row):
        shift = {"vanilla": 0.0, "agop-local": 0.01}.get(row["method"])
        return None if shift is None else {"value": (0.1, 0.5, 0.9)[row["seed"]] + shift}

    difference = write_xai_tris(tmp_path, change).difference("linear", "uncorrelated", "iou", "agop-local", "vanilla")
    assert difference.interval == pytest.approx((0.01, 0.01))


@pytest.mark.parametrize("spec", [None, {}])
def test_other_folders_raise(spec, tmp_path):
    if spec is not None:
        (tmp_path / "spec.json").write_text(json.dumps(spec))
    with pytest.raises(FileError, match="not a run folder"):
        Run(tmp_path)
