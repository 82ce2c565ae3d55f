"""Which method the report recommends."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from agop.report.advice import advice
from agop.report.formats import registry
from agop.report.page.winner_grids import winner_grids
from agop.report.run import Run
from agop.report.terminal import show
from tests.report_runs import write_clevr, write_evaluation, write_xai_tris


def set_iou(values):
    """A change to these mIoUs by scenario and method, 0.1 elsewhere; a number, or one per seed."""

    def change(row):
        if row["metric"] != "iou":
            return None
        value = values.get(row["scenario"], {}).get(row["method"], 0.1)
        return {"value": value[row["seed"]] if isinstance(value, tuple) else value}

    return change


def test_advice_names_the_best_method_of_each_group_and_its_lead(tmp_path):
    values = {
        "linear": {"agop-weighted": (0.40, 0.42, 0.44), "integrated-gradients": (0.30, 0.31, 0.32), "random": 0.05},
        "multiplicative": {"agop-weighted": (0.40, 0.42, 0.44), "integrated-gradients": 0.2, "random": 0.05},
        "translations_rotations": {"integrated-gradients": 0.5, "smoothgrad": (0.28, 0.30, 0.32), "random": 0.05},
        "xor": {
            "smoothgrad": (0.32, 0.28, 0.32),
            "vanilla": (0.28, 0.32, 0.28),
            "agop-local": (0.28, 0.32, 0.28),
            "random": 0.05,
        },
    }
    text = advice(write_xai_tris(tmp_path, set_iou(values)))
    fixed, moving, combined = text.split("; ")
    assert fixed.startswith(
        "By mIoU on uncorrelated backgrounds, where the signal is fixed (linear, multiplicative), "
        "use agop-weighted: mIoU 0.42 on average, ahead of integrated-gradients by 0.165 ["  # (0.11 + 0.22) / 2
    )
    assert moving.startswith("where it moves (translations_rotations), use integrated-gradients: mIoU 0.50, ahead of")
    assert "smoothgrad by 0.200 [0.146, 0.254]" in moving
    assert combined == (
        "where only a combination of pixels is informative (xor), there is no clear winner: "
        "smoothgrad 0.31 and vanilla 0.29 in mIoU are not significantly different."
    )
    assert "agop-local" not in text  # equals vanilla
    for form in ("markdown", "json"):
        assert text in registry.get(form)(Run(tmp_path))
    console = Console(file=io.StringIO(), width=200)
    show(Run(tmp_path), console)
    assert text in console.file.getvalue()


def test_advice_ignores_correlated_backgrounds(tmp_path):
    def change(row):
        better = "gradcam" if row["background"] == "correlated" else "smoothgrad"
        return {"value": 0.9 if row["method"] == better else 0.1}

    text = advice(write_xai_tris(tmp_path, change))
    assert "gradcam" not in text
    assert text.count("use smoothgrad") == 3


@pytest.mark.parametrize(
    ("control", "ending"),
    [
        ({"centre": [0.5, 0.6, 0.5]}, "but a model-independent control scores higher: centre (0.53)."),
        (
            {"centre": [0.5, 0.6, 0.5], "activation-norm": [0.6, 0.7, 0.6]},
            "but controls score higher: activation-norm (0.63) and centre (0.53).",
        ),
        ({"random": [0.4, 0.3, 0.3]}, "and a model-independent control is not significantly worse: random (0.33)."),
    ],
)
def test_advice_names_controls_that_are_not_worse(control, ending, tmp_path):
    text = advice(write_clevr(tmp_path, {"agop-global": [0.3, 0.4, 0.3], "vanilla": [0.1, 0.1, 0.1]} | control))
    assert text.startswith("By mIoU, agop-global is first with mIoU 0.33, ahead of vanilla by 0.233 [")
    assert text.endswith(f", {ending}")
    assert "use " not in text


def test_one_seed_gives_no_recommendation(tmp_path):
    text = advice(write_xai_tris(tmp_path, seeds=1))
    assert "(one seed: significance unknown)" in text
    assert "use " not in text


def test_the_lowest_score_wins_if_lower_is_better(tmp_path):
    run = write_xai_tris(tmp_path, lambda row: {"value": 0.2 if row["method"] == "gradcam" else 0.7})
    replace(run.spec, metrics=("deletion",)).save(tmp_path)
    assert "use gradcam: Del 0.20 on average, ahead of vanilla by 0.500" in advice(Run(tmp_path))


def test_a_method_defined_only_on_easy_samples_does_not_win(tmp_path):
    random = np.random.default_rng(0)
    easy = np.where(np.arange(100) < 60, 0.8, 0.2) + random.normal(0, 0.01, 100)
    scores = {"vanilla": np.where(np.arange(100) < 60, easy, np.nan), "smoothgrad": easy + 0.05}
    run = write_evaluation(tmp_path, scores)
    assert advice(run) == "By mIoU, use smoothgrad: mIoU 0.61, ahead of vanilla by 0.050 [0.050, 0.050]."
    (grid,) = [grid for grid in winner_grids(run) if grid.metric == "iou"]
    assert [square.mark for square in grid.lines["linear / given"]] == ["", "★"]


def test_no_recommendation_while_a_third_method_is_not_significantly_different(tmp_path):
    random = np.random.default_rng(0)
    base = random.uniform(0.3, 0.7, 100)
    scores = {"vanilla": base, "smoothgrad": base - 0.01, "gradcam": base - 0.02 + random.normal(0, 0.4, 100)}
    text = advice(write_evaluation(tmp_path, scores))
    assert "no clear winner" in text
    assert "vanilla" in text
    assert "gradcam" in text
