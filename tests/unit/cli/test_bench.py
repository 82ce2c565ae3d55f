"""The bench command before any cell is computed."""

import pytest

import agop
from agop.runs.spec import RunSpec
from tests.command import error_of, run_checked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "liner"], "did you mean 'linear'"),
        (["--method", "vanila"], "did you mean 'vanilla'"),
        (["--metric", "enrgy"], "did you mean 'energy'"),
        (["--background", "corelated"], "did you mean 'correlated'"),
        (["--masks", "sined"], "did you mean 'signed'"),
        (["--seeds", "0"], "seeds is 0"),
        (["--jobs", "-1"], "jobs is -1"),
    ],
)
def test_invalid_options_raise_before_anything_is_written(arguments, message, tmp_path):
    assert message in error_of("bench", "xai-tris", *arguments, "--out", "run", folder=tmp_path)
    assert not (tmp_path / "run").exists()


def test_folder_that_is_not_a_run_is_never_deleted(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    message = error_of("bench", "xai-tris", "--out", "full", "--fresh", folder=tmp_path)
    assert "is not a run folder" in message
    assert (tmp_path / "full" / "letter.txt").exists()
    assert "could not write" in error_of("bench", "xai-tris", "--out", "full/letter.txt/run", folder=tmp_path)


def test_by_default_every_scenario_method_and_metric_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("agop.bench.runner.run", lambda *_: None)
    monkeypatch.setattr("agop.cli.bench.common._show", lambda _: None)
    run_checked("bench", "xai-tris", "--out", "run", folder=tmp_path)
    spec = RunSpec.load(tmp_path / "run")
    assert spec.scenarios == tuple(agop.scenarios.names("xai-tris"))
    assert spec.methods == (*agop.methods.names(), "centre", "mean-mask")
    assert spec.metrics == tuple(agop.metrics.default_names())


def test_fresh_is_refused_under_torchrun(tmp_path):
    ranks = {"TORCHELASTIC_RUN_ID": "1", "RANK": "1", "WORLD_SIZE": "2"}
    message = error_of("bench", "xai-tris", "--out", "run", "--fresh", folder=tmp_path, **ranks)
    assert "delete run, then start torchrun without --fresh" in message
