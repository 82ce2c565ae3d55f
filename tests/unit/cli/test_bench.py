"""The bench command before any cell is computed."""

import pytest

import agop
from agop.runs.controls import AGOP_CONTROLS
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
        (["--network", "mpl"], "did you mean 'mlp'"),
        (["--network", "llr", "--scenario", "xor"], "xor isn't available with network llr: add --network"),
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


def test_by_default_every_scenario_and_metric_and_the_faster_methods_run(tmp_path, monkeypatch):
    spec = written_spec(tmp_path, monkeypatch)
    assert spec.scenarios == tuple(agop.scenarios.names("xai-tris"))
    assert spec.metrics == tuple(agop.metrics.default_names())
    assert {"vanilla", "agop", "agop-patch", "sobel", "centre", "mean-mask"} <= set(spec.methods)
    assert not {"expected-gradients", "agop-subspace", *AGOP_CONTROLS} & set(spec.methods)
    every = set(agop.methods.names()) - {"agop-subspace"} | {*AGOP_CONTROLS, "centre", "mean-mask"}
    assert set(written_spec(tmp_path, monkeypatch, "--full", "--fresh").methods) == every


def test_untrained_run_has_no_epochs_and_no_restarts(tmp_path, monkeypatch):
    spec = written_spec(tmp_path, monkeypatch, "--untrained")
    assert (spec.epochs, spec.restarts) == (0, None)


def test_fresh_is_refused_under_torchrun(tmp_path):
    ranks = {"TORCHELASTIC_RUN_ID": "1", "RANK": "1", "WORLD_SIZE": "2"}
    message = error_of("bench", "xai-tris", "--out", "run", "--fresh", folder=tmp_path, **ranks)
    assert "delete run, then start torchrun without --fresh" in message


def written_spec(tmp_path, monkeypatch, *arguments):
    monkeypatch.setattr("agop.bench.runner.run", lambda *_: None)
    monkeypatch.setattr("agop.cli.bench.common._show", lambda _: None)
    run_checked("bench", "xai-tris", *arguments, "--out", "run", folder=tmp_path)
    return RunSpec.load(tmp_path / "run")


def test_networks_and_scenarios_are_selected_together(tmp_path, monkeypatch):
    spec = written_spec(tmp_path, monkeypatch, "--network", "mlp", "--network", "llr", "--scenario", "linear")
    assert spec.scenarios == ("linear-mlp", "linear-llr")
    assert spec.tasks == {"linear-mlp": "linear", "linear-llr": "linear"}
    assert (spec.backgrounds, spec.seeds, spec.restarts, spec.masks) == (("uncorrelated",), 6, 5, "own")


def test_full_runs_every_network_on_both_backgrounds(tmp_path, monkeypatch):
    spec = written_spec(tmp_path, monkeypatch, "--full", "--masks", "true", "--restarts", "0")
    assert len(spec.scenarios) == 4 + 4 + 1
    assert spec.backgrounds == ("uncorrelated", "correlated")
    assert (spec.masks, spec.restarts) == ("own", 0)
