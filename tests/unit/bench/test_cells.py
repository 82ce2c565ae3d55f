"""Cells of a bench: names become methods, what is scored, and what can't be explained."""

import itertools
import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import agop
from agop.bench import CNN8by8, scenarios
from agop.bench.runner import BASELINES, begin, resolve_methods, run_cells
from agop.bench.scenarios import Recipe, Scenario, Split
from agop.errors import InputError, UnknownNameError
from agop.report.folder import Cell, Gallery, RunSpec
from agop.report.run import Run
from tests import zoo
from tests.unit.evaluation.test_grid import IMAGES, LABELS, MASKS, ChannelEnergy

CELLS = [Cell(*parts) for parts in itertools.product(("linear", "xor"), ("plain", "smooth"), (0, 1))]
LAYERS = {"gradcam": "0", "gradcam@1": "1"}
METHODS = ("vanilla", "sobel", "centre", "agop-weighted", "integrated-gradients@mean", "expected-gradients:samples=3")
METRICS = ("energy", "pointing_game", "average_precision", "deletion")


@pytest.fixture
def scenario(monkeypatch):
    """Register a scenario for one test."""

    def registered(name, splits, network, layer="0", **options):
        own = Scenario(name, "own", splits, network, layer, ("plain",), **options)
        monkeypatch.setitem(scenarios.base.registry.plugins, name, own)

    return registered


def cell_of(folder, name, methods, metrics=("energy",), **options):
    """Compute one cell. Returns its folder."""
    spec = RunSpec("own", (name,), ("plain",), 1, methods, metrics, **options)
    run_cells(spec, folder, spec.cells(), lambda done: None)
    return folder / "cells" / spec.cells()[0].name


@pytest.fixture(scope="module")
def parts():
    """Scenario, training data, priors and cell of a bench."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 8), torch.nn.Flatten())
    images, labels = torch.randn(30, 3, 8, 8), torch.zeros(30, dtype=torch.long)
    batches = [(images, model(images).argmax(1))]
    priors = {kind: agop.fit(model, batches, progress=False) for kind in ("training", "checkpoint")}
    scenario = Scenario("s", "b", None, None, "layer4", ("x",), prior="checkpoint", black=(-2.0, -1.0, 0.0))
    return scenario, Split(images, labels, torch.rand(30, 8, 8) < 0.3), priors, Cell("s", "x", 0)


@pytest.fixture(scope="module")
def entry(parts):
    return lambda name: resolve_methods([name], *parts)[0][name]


def test_names_resolve_to_methods_layers_priors_and_baselines(entry, parts):
    _, training, priors, _ = parts
    assert entry("vanilla").method.name == "vanilla"
    assert entry("captum:InputXGradient").method.attribution == "InputXGradient"
    assert entry("gradcam").layer == "layer4"
    assert entry("gradcam@layer2").layer == "layer2"
    assert entry("activation-norm").layer is None
    assert entry("activation-norm@layer1").layer == "layer1"
    own = entry("gradcam:layer=layer3")
    assert (own.method.layer, own.layer) == ("layer3", None)
    assert entry("integrated-gradients:steps=7@black").method.steps == 7
    assert entry("agop-global").prior is priors["checkpoint"]
    assert entry("agop-global@training").prior is priors["training"]
    assert entry("mean-mask").method.name == "mean-mask"
    baselines = {name: entry(f"integrated-gradients@{name}").method.baseline for name in BASELINES}
    assert baselines["zero"] == 0
    assert baselines["black"].shape == (3, 8, 8)
    assert baselines["black"][:, 4, 5].tolist() == [-2, -1, 0]
    assert baselines["training"].shape == (5, 3, 8, 8)
    torch.testing.assert_close(baselines["mean"][:, 0, 0], training.images.mean((0, 2, 3)))
    flat = torch.full((1, 3, 8, 8), 0.7)
    torch.testing.assert_close(baselines["blurred"](flat), flat)
    noisy = training.images
    assert baselines["blurred"](noisy).shape == noisy.shape
    assert baselines["blurred"](noisy).std() < 0.6 * noisy.std()


def test_methods_with_a_prior_take_their_references_from_it(entry):
    assert all(entry(name).references_from_prior for name in ("agop-weighted", "agop-weighted@training", "agop@layer2"))
    assert not any(entry(name).references_from_prior for name in ("vanilla", "expected-gradients", "gradcam@layer2"))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("vanila", UnknownNameError, "did you mean 'vanilla'"),
        ("vanilla@layer2", InputError, "has no variant 'layer2'"),
        ("integrated-gradients@white", InputError, "has no variant 'white'"),
        ("agop-global@last", InputError, "has no variant 'last'"),
    ],
)
def test_unknown_names_and_variants_raise(entry, name, error, message):
    with pytest.raises(error, match=message):
        entry(name)


def test_signed_masks_give_the_same_controls_as_masks_without_signs(parts):
    scenario, training, priors, cell = parts
    signs = torch.where(torch.rand(30, 1, 1) < 0.5, -1, 1).to(torch.int8)
    signed = replace(training, masks=signs * training.masks)
    ours, expected = (
        resolve_methods(["centre", "mean-mask"], scenario, split, priors, cell)[0] for split in (signed, training)
    )
    for name in ours:
        torch.testing.assert_close(ours[name].method.map, expected[name].method.map)


@pytest.mark.parametrize("name", ["random", "smoothgrad"])
def test_every_cell_has_its_own_random_numbers_and_keeps_them(name):
    images = zoo.images(2)
    split = Split(images, torch.zeros(2, dtype=torch.long), torch.ones(2, 12, 12))
    own = Scenario("s", "b", None, None, "layer", ("x",))
    model, priors = zoo.build("plain"), {"training": agop.AGOP(torch.ones(3, 12, 12), 1)}

    def maps(cell):
        return agop.explain(model, images, resolve_methods([name], own, split, priors, cell)[0][name].method)

    results = [maps(cell) for cell in CELLS]
    for first, second in itertools.combinations(results, 2):
        assert not torch.allclose(first, second)
    assert all(torch.equal(maps(cell), result) for cell, result in zip(CELLS, results, strict=True))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)
    )


def splits(background, seed, masks):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(16, 3, 12, 12, generator=generator)
    split = Split(images, torch.arange(16) % 2, torch.ones(16, 12, 12, dtype=torch.bool))
    return split, split, split


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_gradcam_at_a_convolution_sees_its_output_before_the_norm(tmp_path, scenario):
    """The other methods are scored on a copy whose norms are folded into the convolutions."""
    recipe = Recipe(epochs=1, batch=4, snapshot_every=None)
    scenario("folded", splits, network, recipe=recipe)
    folder = cell_of(tmp_path, "folded", tuple(LAYERS), epochs=1, test_images=4)
    model = network()
    model.load_state_dict(load_file(folder / "checkpoint.safetensors"))
    maps, images = Gallery.load(folder).maps, splits("plain", 0, "true")[0].images[:4]
    for name, layer in LAYERS.items():
        expected = agop.explain(model.eval(), images, "gradcam", layer=layer)
        assert expected.max() > 0
        torch.testing.assert_close(torch.from_numpy(maps[name]), expected, rtol=0.01, atol=0.01 * float(expected.max()))


def test_untrained_network_has_its_initial_weights_and_a_prior_of_all_samples(tmp_path, scenario):
    scenario("untrained", splits, network, recipe=Recipe(schedule="one-cycle"))
    folder = cell_of(tmp_path, "untrained", ("agop-weighted",), epochs=0, test_images=4)
    torch.manual_seed(0)
    torch.testing.assert_close(load_file(folder / "checkpoint.safetensors"), dict(network().state_dict()))
    prior = agop.AGOP.load(folder / "agop.safetensors")
    assert prior.count == 16
    assert (folder / "convergence.jsonl").read_text() == ""


def test_a_network_that_ignores_its_input_is_reported_as_not_learned(tmp_path, scenario):
    """Its last activations are all zero: the logits are the same for every image."""

    def dead_network():
        model = CNN8by8()
        for name, parameter in model.named_parameters():
            if name.startswith("conv"):
                torch.nn.init.constant_(parameter, -1.0 if name.endswith("bias") else 0.0)
        return model

    def small_splits(background, seed, masks):
        images = torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
        masks = torch.zeros(60, 8, 8, dtype=torch.bool)
        masks[:, :2, :2] = True
        return tuple(Split(images[part::3], (torch.arange(60) % 2)[part::3], masks[part::3]) for part in range(3))

    recipe = Recipe(epochs=2, batch=20, snapshot_every=1)
    scenario("dead", small_splits, dead_network, "conv3", recipe=recipe, learned=0.9)
    methods = ("vanilla", "gradcam", "agop-global", "agop-weighted")
    folder = cell_of(tmp_path, "dead", methods, ("iou", "deletion"), epochs=2, restarts=1)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    values = {(row["method"], row["metric"]): row for row in rows}
    assert values["model", "learned"]["value"] == 0
    assert values["model", "attempts"]["value"] == 2
    for method in ("agop-global", "agop-weighted"):
        assert values[method, "iou"]["value"] is None
        assert "diag(M) is zero" in next(iter(values[method, "iou"]["undefined"]))
    steps = [json.loads(line) for line in (folder / "convergence.jsonl").read_text().splitlines()]
    assert {row["method"] for row in steps} == {"model"}


@pytest.fixture
def run(tmp_path, scenario):
    """Run one cell with a network that needs no training."""

    def finished_run(grids=7, scale=1.0, metrics=METRICS, images=20):
        recipe = Recipe(epochs=1, batch=60, learning_rate=1e-6, snapshot_every=None)
        split = Split(IMAGES, LABELS, MASKS)
        network = partial(ChannelEnergy, scale)
        scenario("squares", lambda *_: (split, split, split), network, None, recipe=recipe, grids=grids)
        spec = RunSpec("own", ("squares",), ("plain",), 1, METHODS, metrics, epochs=1, test_images=images, steps=2)
        begin(spec, tmp_path)
        fractions = []
        run_cells(spec, tmp_path, spec.cells(), fractions.append)
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


def test_scenarios_have_grids_only_if_they_say_so(run):
    assert run(grids=0).kinds == ["true"]
    assert {name for name in scenarios.names() if scenarios.get(name).grids} == set(scenarios.names("composite"))
