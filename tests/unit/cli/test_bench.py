"""`agop bench` before anything is computed, `agop list` and `agop data`."""

from dataclasses import fields

import pytest

import agop
from tests.clevr import write_official
from tests.command import error_of, run, run_checked
from tests.image_files import save_random, write_digits

CONTROLS = {f"agop:what={name}" for name in ("activation-norm", "sobel", "mean-difference")}


@pytest.fixture
def files(tmp_path):
    """Folders of photographs and digits: enough, one, none."""
    (tmp_path / "empty").mkdir()
    save_random(tmp_path / "photos", *(f"{number}.png" for number in range(12)), shape=(32, 32, 3))
    save_random(tmp_path / "few", "0.png", shape=(32, 32, 3))
    write_digits(tmp_path / "digits", 20)


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A function from arguments to the specification and the notes of a run that isn't computed."""
    plans = []

    def stop(plan, *_, **__):
        plans.append(plan)
        raise SystemExit(0)

    monkeypatch.setattr("agop.bench.runner.run", stop)

    def plan(*arguments):
        run_checked("bench", *arguments, "--out", "run", folder=tmp_path)
        return plans[-1].spec, plans[-1].notes

    return plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["xai-tris", "--scenario", "liner"], "did you mean 'linear'"),
        (["xai-tris", "--method", "vanila"], "did you mean 'vanilla'"),
        (["xai-tris", "--method", "captum:Saliency@conv1"], "captum:Saliency has no variant 'conv1'"),
        (["xai-tris", "--metric", "enrgy"], "did you mean 'energy'"),
        (["xai-tris", "--background", "corelated"], "did you mean 'correlated'"),
        (["xai-tris", "--masks", "sined"], "did you mean 'signed'"),
        (["xai-tris", "--network", "mpl"], "did you mean 'mlp'"),
        (["xai-tris", "--network", "llr", "--scenario", "xor"], "xor isn't available with network llr: add --network"),
        (["xai-tris", "--seeds", "0"], "seeds is 0"),
        (["xai-tris", "--jobs", "-1"], "jobs is -1"),
        (["xai-tris-64", "--photos", "empty"], "empty has no pictures: pass a folder of images"),
        (
            ["xai-tris-64", "--photos", "photos", "--background", "white"],
            "--photos photos isn't used: add --background",
        ),
        (["xai-tris-64", "--scenario", "liner"], "did you mean 'linear-64'"),
        (["xai-tris-64", "--background", "photo"], "did you mean 'photos'"),
        (["composite", "--photos", "empty"], "empty has no pictures: pass a folder of images"),
        (["composite", "--photos", "few"], "photographs or digits: 1, too few"),
        (["composite", "--digits", "empty"], "empty has no idx files: it needs train-images-idx3-ubyte"),
        (["composite", "--size", "48"], "size is 48: pass 32 or 64"),
        (["composite", "--samples", "0"], "samples is 0: pass 100 or more"),
        (["composite", "--scenario", "compsite"], "did you mean 'composite'"),
        (["clevr-xai", "--full", "--quick"], "--full and --quick exclude each other"),
        (["clevr-xai", "--network", "resnet"], "did you mean 'resnet18'"),
        (["clevr-xai", "--weights", "missing.pth"], "weights missing.pth is not a file"),
        (["shortcuts", "--kind", "path"], "did you mean 'patch'"),
        (["shortcuts", "--prevalence", "balance"], "did you mean 'balanced'"),
        (["shortcuts", "--strength", "week"], "did you mean 'weak'"),
        (["shortcuts", "--detector", "spary"], "did you mean 'spray'"),
        (["shortcuts", "--label", "0", "--label", "12"], "label 12 isn't one of 0, 1, 2"),
        (["shortcuts", "--label", "3", "--label", "3"], "label 3 appears twice"),
        (["shortcuts", "--label", "3"], "classes is 1: pass 2 or more"),
        (["shortcuts", "--samples", "100"], "samples is 100: pass 60 or more per class"),
        (["shortcuts", "--data", "missing"], "missing"),
    ],
)
@pytest.mark.usefixtures("files")
def test_invalid_options_and_files_raise_before_anything_is_written(arguments, message, tmp_path):
    assert message in error_of("bench", *arguments, "--out", "run", folder=tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("arguments", [("xai-tris",), ("xai-tris", "--fresh"), ("shortcuts", "--kind", "clean")])
def test_a_folder_with_other_files_stays_as_it_is(arguments, tmp_path):
    (tmp_path / "full").mkdir()
    for name in ("letter.txt", "spec.json"):
        (tmp_path / "full" / name).write_text("mine")
    message = error_of("bench", *arguments, "--quick", "--out", "full", folder=tmp_path)
    assert "full already exists and has files that agop didn't write" in message
    assert "--force" in message
    found = {path.name: path.read_text() for path in (tmp_path / "full").iterdir()}
    assert found == {"letter.txt": "mine", "spec.json": "mine"}


def test_by_default_every_scenario_and_metric_and_the_faster_methods_run(planned):
    spec, notes = planned("xai-tris")
    assert spec.scenarios == tuple(agop.bench.scenarios.names("xai-tris"))
    assert spec.metrics == tuple(agop.metrics.default_names())
    assert {"vanilla", "agop", "agop-patch", "sobel", "centre", "mean-mask"} <= set(spec.methods)
    assert not {"expected-gradients", "agop-subspace", *CONTROLS} & set(spec.methods)
    assert (spec.backgrounds, spec.seeds, spec.restarts, spec.masks) == (("uncorrelated",), 6, 5, "own")
    assert notes == ()


def test_full_runs_every_method_and_network_on_both_backgrounds(planned):
    spec, _ = planned("xai-tris", "--full", "--masks", "true", "--restarts", "0")
    assert set(spec.methods) == set(agop.methods.names()) - {"agop-subspace", "agop-ixg"} | {
        *CONTROLS,
        "centre",
        "mean-mask",
    }
    assert len(spec.scenarios) == 4 + 4 + 1
    assert spec.backgrounds == ("uncorrelated", "correlated")
    assert (spec.masks, spec.restarts) == ("own", 0)


def test_untrained_run_has_no_epochs_and_no_restarts(planned):
    spec, _ = planned("xai-tris", "--untrained")
    assert (spec.epochs, spec.restarts) == (0, None)


def test_networks_and_scenarios_are_selected_together(planned):
    spec, _ = planned("xai-tris", "--network", "mlp", "--network", "llr", "--scenario", "linear")
    assert spec.scenarios == ("linear-mlp", "linear-llr")
    assert spec.tasks == {"linear-mlp": "linear", "linear-llr": "linear"}


def test_changed_code_of_the_users_method_is_another_specification(planned, tmp_path):
    def digest(text):
        (tmp_path / "mine.py").write_text(
            "from agop.methods import Method\nclass Mine(Method):\n    name = 'mine'\n"
            f"    def maps(self, job): return job.images.abs().sum(1)  # {text}\n"
        )
        return planned("xai-tris", "--method", "mine:Mine", "--method", "vanilla")[0]

    first, same, other = digest("one"), digest("one"), digest("another")
    assert first.methods == ("vanilla", "mine:Mine")
    assert first == same
    assert first.code.keys() == other.code.keys() == {"mine:Mine"}
    assert first.code != other.code


@pytest.mark.parametrize(
    ("arguments", "backgrounds", "noted"),
    [
        (["--scenario", "xor"], ("white",), False),
        (["--scenario", "xor-64", "--photos", "photos"], ("photos",), False),
        (["--photos", "photos", "--background", "photos", "--background", "white"], ("white", "photos"), False),
        (["--background", "photos"], ("pink-noise",), True),
        (["--background", "photos", "--background", "pink-noise"], ("pink-noise",), True),
        (["--background", "pink-noise"], ("pink-noise",), False),
    ],
)
@pytest.mark.usefixtures("files")
def test_pink_noise_stands_in_for_missing_photographs_with_a_note(arguments, backgrounds, noted, planned):
    spec, notes = planned("xai-tris-64", *arguments)
    assert spec.backgrounds == backgrounds
    assert any("pink noise" in note for note in notes) == noted
    assert ("--scenario" in arguments) == (spec.scenarios == ("xor-64",))


@pytest.mark.usefixtures("files")
def test_composite_runs_with_files_or_with_noted_stand_ins(planned, tmp_path):
    spec, notes = planned("composite")
    assert (spec.scenarios, spec.backgrounds) == (("composite", "composite-still"), ("pink-noise",))
    assert (spec.options, len(notes)) == ({}, 2)
    own = ("--digits", "digits", "--photos", "photos", "--size", "64", "--samples", "300")
    spec, notes = planned("composite", *own)
    assert (spec.backgrounds, notes) == (("photos",), ())
    paths = {name: str(tmp_path / name) for name in ("digits", "photos")}
    assert spec.options == paths | {"size": 64, "samples": 300}


@pytest.mark.parametrize(
    ("benchmark", "scenario", "background", "kinds"),
    [("xai-tris-64", "linear", "white", {"own", "union"}), ("composite", "composite", "pink-noise", {"own"})],
)
@pytest.mark.slow
def test_quick_run_scores_every_kind_of_mask(benchmark, scenario, background, kinds, tmp_path):
    arguments = ("--scenario", scenario, "--method", "vanilla", "--metric", "energy", "--seeds", 1, "--jobs", 1)
    run_checked("bench", benchmark, *arguments, "--quick", "--out", "run", folder=tmp_path)
    table = run_checked("report", "run", "--format", "csv", folder=tmp_path).stdout
    for kind in kinds:
        assert f",{kind}," in table


def test_list_has_every_method_metric_benchmark_and_model(tmp_path):
    lines = run_checked("list", folder=tmp_path, COLUMNS="400").stdout.splitlines()
    rows = {line.split()[0]: line for line in reversed(lines) if line.strip()}
    for name in agop.methods.names():
        method = agop.methods.get(name)
        if not method.__module__.startswith("agop."):
            continue  # of another test
        needed = [word for word in ("model", "prior", "references") if getattr(method, f"needs_{word}")]
        assert (", ".join(needed) or "nothing") in rows[name]
        assert agop.methods.descriptions([name])[name] in rows[name]
        assert all(f"{field.name}={field.default!r}" in rows[name] for field in fields(method))
    for name in ("iou", "deletion"):
        assert ("higher" if agop.metrics.get(name).higher_is_better else "lower") in rows[name]
    assert {"xai-tris", "xai-tris-64", "composite", "clevr-xai", "shortcuts", "torchvision:NAME"} <= rows.keys()


def test_names_and_options_in_the_list_are_whole_in_a_narrow_terminal(tmp_path):
    words = run_checked("list", folder=tmp_path, COLUMNS="80").stdout.translate(str.maketrans("(),", "   ")).split()
    methods = [agop.methods.get(name) for name in agop.methods.names()]
    options = {f"{field.name}={field.default!r}" for method in methods for field in fields(method)}
    assert {*agop.methods.names(), *agop.metrics.names(), *options} - set(words) == set()


def test_scenarios_are_listed_on_demand(tmp_path):
    output = run_checked("list", "--scenarios", folder=tmp_path).stdout
    assert all(f"{name} " in output for name in agop.bench.scenarios.names())


def test_data_prints_where_to_get_the_files_or_the_summary_of_a_release(tmp_path):
    page = run_checked("data", "clevr-xai", folder=tmp_path).stdout
    for words in ("CLEVR-XAI_v1.0.zip", "CLEVR-XAI_v1.0_images_masks.zip", "/releases", "agop bench clevr-xai --data"):
        assert words in page
    assert "download CLEVR-XAI_v1.0.zip" in error_of("data", "clevr-xai", tmp_path, folder=tmp_path)
    write_official(tmp_path / "release")
    result = run("data", "clevr-xai", "release", folder=tmp_path)
    assert "kept: 4 samples on 4 images, 2 metal and 2 rubber" in result.stdout
