"""agop's methods in Quantus' metrics, and its scores compared with agop's where both define the same metric."""

import warnings

import numpy as np
import pytest
import torch

import agop
from agop import metrics
from agop.bench import CNN8by8
from agop.bench.scenarios import xai_tris
from agop.errors import InputError, PriorError
from agop.integrations.quantus import as_quantus
from tests import zoo
from tests.state import assert_same, same, state_of

quantus = pytest.importorskip("quantus", reason="quantus needs Python 3.11")

QUIET = {"disable_warnings": True, "display_progressbar": False}


@pytest.fixture(scope="module")
def task():
    """A briefly trained network, its prior, and eight images with masks."""
    torch.manual_seed(0)
    train, _, test = xai_tris("linear")
    model = CNN8by8()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for rows in torch.randperm(len(train)).split(64)[:40]:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(train.images[rows]), train.labels[rows]).backward()
        optimizer.step()
    batches = [(train.images[:200], train.labels[:200])]
    return model.eval(), agop.fit(model, batches, progress=False), test.first(8)


def scores(metric, task, **more):
    model, prior, data = task
    return metric(
        model=model, x_batch=data.images.numpy(), y_batch=data.labels.numpy(), s_batch=data.masks[:, None].numpy(),
        explain_func=as_quantus("agop-weighted", prior), device="cpu", channel_first=True, **more,
    )  # fmt: skip


def maps_of(task, method="agop-weighted"):
    model, prior, data = task
    return agop.explain(model, data.images, method, prior, data.labels)


@pytest.mark.parametrize("method", ["agop-weighted", "agop-global", "vanilla", "gradcam", "captum:InputXGradient"])
@pytest.mark.filterwarnings("ignore:the map of layer")
def test_explain_func_gives_the_maps_of_explain(task, method):
    model, prior, data = task
    maps = as_quantus(method, prior)(model, data.images.numpy(), data.labels.numpy(), device="cpu")
    assert type(maps) is np.ndarray
    assert maps.shape == (8, 1, 8, 8)
    np.testing.assert_array_equal(maps[:, 0], maps_of(task, method).numpy())


def test_inputs_may_be_arrays_or_tensors(task):
    model, prior, data = task
    explain, expected = as_quantus("agop-weighted", prior), maps_of(task)[:, None].numpy()
    images, labels = data.images.numpy(), data.labels.numpy()
    images.flags.writeable = False
    for inputs in (images, images.astype(np.float64), data.images, data.images.clone().requires_grad_()):
        np.testing.assert_array_equal(explain(model=model, inputs=inputs, targets=labels), expected)
    np.testing.assert_allclose(explain(model, images[:1], labels[:1]), expected[:1], rtol=1e-5, atol=1e-7)
    predicted = model(data.images).argmax(1).numpy()
    np.testing.assert_array_equal(explain(model, images), explain(model, images, predicted))
    each = np.concatenate([explain(model, image[None], 1) for image in images])
    np.testing.assert_allclose(explain(model, images, 1), each, rtol=1e-5, atol=1e-7)


def test_configured_method_leaves_the_model_unchanged_and_invalid_arguments_raise():
    model, images = zoo.build("batch norm and dropout").train(), zoo.images()
    before = state_of(model)
    maps = as_quantus(agop.methods.SmoothGrad(samples=3))(model, images.numpy(), np.array([0, 1, 2, 1, 0]))
    assert maps.shape == (5, 1, 12, 12)
    assert_same(before, state_of(model))
    with pytest.raises(PriorError, match="needs a prior"):
        as_quantus()(model, images.numpy(), 0)
    with pytest.raises(InputError, match=r"give a torch\.nn\.Module"):
        as_quantus("vanilla")("model", images.numpy(), 0)
    with pytest.raises(TypeError, match="methd"):
        as_quantus("vanilla")(model, images.numpy(), 0, methd="Saliency")


# AttributionLocalisation in one batch: Quantus divides by zero for a batch of two images.
@pytest.mark.parametrize(
    ("ours", "name", "batch_size"),
    [
        ("pointing_game", "PointingGame", 3),
        ("energy", "RelevanceMassAccuracy", 3),
        ("rank_accuracy", "RelevanceRankAccuracy", 3),
        ("energy", "AttributionLocalisation", 8),
        ("rank_accuracy", "TopKIntersection", 8),
    ],
)
def test_localisation_scores_equal_agop(task, ours, name, batch_size):
    (size,) = set(task[2].masks.flatten(1).sum(1).tolist())
    options = {"k": size} if name == "TopKIntersection" else {}
    theirs = scores(getattr(quantus, name)(**options, **QUIET), task, batch_size=batch_size)
    expected = metrics.get(ours)(maps_of(task), task[2].masks)
    np.testing.assert_allclose(np.array(theirs, float), expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FaithfulnessCorrelation", {"subset_size": 16, "nr_runs": 10, "return_aggregate": False}),
        ("FaithfulnessEstimate", {"features_in_step": 8}),
        ("MonotonicityCorrelation", {"nr_samples": 3, "features_in_step": 8}),
        ("RegionPerturbation", {"patch_size": 2, "regions_evaluation": 4}),
        ("Selectivity", {"patch_size": 4}),
        ("Infidelity", {"n_perturb_samples": 3, "perturb_patch_sizes": [4]}),
        ("AUC", {}),
        ("Sparseness", {}),
        ("MaxSensitivity", {"nr_samples": 2}),
        ("RandomLogit", {"num_classes": 2}),
    ],
)
def test_other_metrics_run_and_leave_the_model_unchanged(task, name, options):
    before = state_of(task[0])
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Quantus' own
        values = scores(getattr(quantus, name)(**options, **QUIET), task)
    assert len(values) == 8
    assert np.isfinite(np.array([np.mean(value) for value in values], float)).all()
    after = state_of(task[0])
    assert all(same(before[key], after[key]) for key in ("parameters", "buffers", "hooks", "modes", "gradients"))
