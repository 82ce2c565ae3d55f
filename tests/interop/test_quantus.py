"""agop's methods in Quantus' metrics, and its scores compared with agop's where both define the same metric."""

import warnings

import numpy as np
import pytest
import torch

import agop
from agop import metrics
from agop.errors import InputError, PriorError
from agop.interop.quantus import as_quantus
from agop.networks import CNN8by8
from agop.scenarios import xai_tris
from tests import zoo
from tests.state import assert_same, state_of

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


def scores(metric, task, method="agop-weighted", masks=None, **more):
    model, prior, data = task
    masks = data.masks if masks is None else masks
    return metric(
        model=model, x_batch=data.images.numpy(), y_batch=data.labels.numpy(), s_batch=masks[:, None].numpy(),
        explain_func=as_quantus(method, prior), device="cpu", channel_first=True, **more,
    )  # fmt: skip


def maps_of(task, method="agop-weighted"):
    model, prior, data = task
    return agop.explain(model, data.images, method, prior, data.labels)


@pytest.mark.parametrize("method", ["agop-weighted", "agop-global", "vanilla", "gradcam", "captum:DeepLift"])
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


def test_configured_method_on_three_channels_and_errors():
    model, images = zoo.build("object"), zoo.images()
    maps = as_quantus(agop.methods.SmoothGrad(samples=3))(model, images.numpy(), np.array([0, 1, 2, 1, 0]))
    assert maps.shape == (5, 1, 12, 12)
    with pytest.raises(PriorError, match="needs a prior"):
        as_quantus()(model, images.numpy(), 0)
    with pytest.raises(InputError, match=r"give a torch\.nn\.Module"):
        as_quantus("vanilla")("model", images.numpy(), 0)
    with pytest.raises(TypeError, match="methd"):
        as_quantus("vanilla")(model, images.numpy(), 0, methd="Saliency")


def test_model_is_unchanged():
    model, images = zoo.build("batch norm and dropout").train(), zoo.images()
    before = state_of(model)
    as_quantus("smoothgrad")(model, images.numpy(), 1, device="cpu")
    assert_same(before, state_of(model))


@pytest.mark.parametrize("batch_size", [8, 3])
@pytest.mark.parametrize(
    ("ours", "name"),
    [
        ("pointing_game", "PointingGame"),
        ("energy", "RelevanceMassAccuracy"),
        ("rank_accuracy", "RelevanceRankAccuracy"),
    ],
)
def test_localisation_scores_equal_agop(task, ours, name, batch_size):
    theirs = scores(getattr(quantus, name)(**QUIET), task, batch_size=batch_size)
    expected = metrics.get(ours)(maps_of(task), task[2].masks)
    np.testing.assert_allclose(np.array(theirs, float), expected.numpy(), rtol=1e-5)


def test_attribution_localisation_of_one_batch_equals_energy(task):
    theirs = scores(quantus.AttributionLocalisation(**QUIET), task)
    np.testing.assert_allclose(theirs, metrics.energy(maps_of(task), task[2].masks).numpy(), rtol=1e-5)


def test_top_k_with_the_mask_size_equals_rank_accuracy(task):
    (size,) = set(task[2].masks.flatten(1).sum(1).tolist())
    theirs = scores(quantus.TopKIntersection(k=size, **QUIET), task)
    np.testing.assert_allclose(theirs, metrics.rank_accuracy(maps_of(task), task[2].masks).numpy(), rtol=1e-5)


def test_auc_equals_scikit_learn(task):
    from sklearn.metrics import roc_auc_score

    pairs = zip(task[2].masks, maps_of(task), strict=True)
    expected = [roc_auc_score(mask.flatten(), values.flatten()) for mask, values in pairs]
    np.testing.assert_allclose(scores(quantus.AUC(**QUIET), task), expected)


def test_pixel_flipping_equals_the_deletion_curve(task):
    """One pixel per step. Quantus' curve starts after the first pixel, agop's before it."""
    model, _, data = task
    flipping = quantus.PixelFlipping(features_in_step=1, perturb_baseline=0.0, abs=False, normalise=False, **QUIET)
    curves = np.array(scores(flipping, task, softmax=True))
    with torch.no_grad():
        before = model(data.images).softmax(1)[torch.arange(8), data.labels].numpy()
    curves = np.concatenate([before[:, None], curves], axis=1)
    expected = metrics.deletion(model, data.images, maps_of(task), target=data.labels)
    np.testing.assert_allclose(np.trapezoid(curves, dx=1 / 64), expected.numpy(), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FaithfulnessCorrelation", {"subset_size": 16, "nr_runs": 10, "return_aggregate": False}),
        ("FaithfulnessEstimate", {"features_in_step": 8}),
        ("MonotonicityCorrelation", {"nr_samples": 3, "features_in_step": 8}),
        ("RegionPerturbation", {"patch_size": 2, "regions_evaluation": 4}),
        ("Selectivity", {"patch_size": 4}),
        ("Infidelity", {"n_perturb_samples": 3, "perturb_patch_sizes": [4]}),
        ("Sparseness", {}),
        ("MaxSensitivity", {"nr_samples": 2}),
        ("RandomLogit", {"num_classes": 2}),
    ],
)
def test_other_metrics_run_and_leave_the_model_unchanged(task, name, options):
    model, _, _ = task
    before = {key: value.clone() for key, value in model.state_dict().items()}
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Quantus' own
        values = scores(getattr(quantus, name)(**options, **QUIET), task)
    assert len(values) == 8
    assert np.isfinite(np.array([np.mean(value) for value in values], float)).all()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None or parameter.requires_grad for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore")
def test_empty_mask_is_a_hit_in_quantus_and_nan_in_agop(task):
    masks = task[2].masks.clone()
    masks[2] = False
    assert scores(quantus.PointingGame(**QUIET), task, masks=masks)[2] == 1
    assert np.isnan(scores(quantus.RelevanceMassAccuracy(**QUIET), task, masks=masks)[2])
    assert metrics.pointing_game(maps_of(task), masks)[2].isnan()
    assert metrics.energy(maps_of(task), masks)[2].isnan()


def test_tie_of_highest_pixels_is_a_hit_in_quantus_and_a_share_in_agop():
    maps, masks = torch.zeros(1, 8, 8), torch.zeros(1, 8, 8, dtype=torch.bool)
    maps[0, 0, :4], masks[0, 0, 0] = 1, True
    hit = quantus.PointingGame(abs=False, normalise=False, **QUIET)(
        model=CNN8by8(), x_batch=np.zeros((1, 1, 8, 8), np.float32), y_batch=np.zeros(1, int),
        a_batch=maps[:, None].numpy(), s_batch=masks[:, None].numpy(), device="cpu", channel_first=True,
    )  # fmt: skip
    assert hit[0] == 1
    assert metrics.pointing_game(maps, masks)[0] == 0.25


def test_quantus_attribution_localisation_divides_by_zero_for_a_batch_of_two(task):
    """Quantus computes an image's size from the third and later images of a batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores(quantus.AttributionLocalisation(**QUIET), task, batch_size=2)
    assert any("divide by zero" in str(warning.message) for warning in caught)
