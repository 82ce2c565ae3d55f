"""Moments of the counted images, against a loop over these images."""

import pickle
from itertools import permutations

import pytest
import torch
from torch import nn

import agop
from agop.errors import InputError
from agop.networks import CNN8by8
from agop.statistic.accumulator import Accumulator
from agop.statistic.moments import consistency, moment_sums
from tests import zoo

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def slow_moments(images):
    """Mean and standard deviation (2,C,H,W) in a loop over images: the squared distance from the mean."""
    images = images.double()
    mean = sum(images) / len(images)
    variance = sum((image - mean) ** 2 for image in images) / len(images)
    return torch.stack([mean, variance.sqrt()]).float()


def accumulated(images, *splits):
    sums = Accumulator()
    for part in torch.tensor_split(images, splits):
        sums.update(torch.ones_like(part), torch.zeros(len(part)).long(), 2, images=part)
    return sums


@pytest.mark.parametrize("only_correct", [False, True])
def test_moments_are_those_of_a_loop_over_the_counted_images(only_correct):
    model, images, labels = zoo.build("plain").eval(), zoo.images(12), torch.arange(12) % 3
    correct = model(images).argmax(1) == labels
    assert 0 < correct.sum() < 12
    expected = slow_moments(images[correct] if only_correct else images)
    hook = agop.AGOPTrainingHook(model, only_correct=only_correct)
    added = agop.AGOPTrainingHook(model, only_correct=only_correct)
    for part in (slice(0, 5), slice(5, 12)):
        hook.step(images[part], labels[part])
        added.add(agop.input_gradients(model, images[part]), labels[part], images[part])
    batches = [(images[:7], labels[:7]), (images[7:], labels[7:])]
    fitted = agop.fit(model, batches, only_correct, progress=False, batch_size=2)
    for prior in (hook.finalize(), added.finalize(), fitted):
        assert prior.image_moments.dtype == torch.float32
        torch.testing.assert_close(prior.image_moments, expected, **CLOSE)


def test_samples_with_a_gradient_of_nan_are_not_counted():
    model, images = zoo.build("plain"), zoo.images(5)
    images[2, 0, 0, 0] = torch.nan
    prior = agop.fit(model, [images], False, progress=False, nan="skip")
    torch.testing.assert_close(prior.image_moments, slow_moments(images[[0, 1, 3, 4]]), **CLOSE)


def test_infinite_images_with_finite_gradients_give_no_moments_and_a_file_that_loads(tmp_path):
    images = zoo.images(5)
    images[2, 0, 0, 0] = torch.inf
    model = nn.Sequential(nn.Hardtanh(), nn.Flatten(), nn.Linear(432, 3))
    prior = agop.fit(model, [images], False, progress=False, references=9)
    assert prior.count == 5
    assert prior.image_moments is None
    prior.save(tmp_path / "prior.safetensors")
    assert len(agop.AGOP.load(tmp_path / "prior.safetensors").references) == 4


@pytest.mark.parametrize("splits", [(), (1, 2, 40)])
def test_a_large_offset_keeps_the_standard_deviation_and_a_constant_pixel_has_none(splits):
    images = 1e4 + torch.randn(60, 3, 40, 50, generator=torch.Generator().manual_seed(0))
    images[:, 0, 0, 0] = 1e4 + 0.1
    mean, deviation = accumulated(images, *splits).image_moments()
    torch.testing.assert_close(torch.stack([mean, deviation])[:, 1:], slow_moments(images)[:, 1:])
    assert mean[0, 0, 0] == images[0, 0, 0, 0]
    assert 0 <= deviation[0, 0, 0] < 1e-3


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_parts_merge_in_any_order(order):
    images = zoo.images(9)
    parts = [accumulated(part) for part in torch.tensor_split(images, (2, 6))]
    a, b, c = (parts[place] for place in order)
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)).merge(Accumulator())):
        torch.testing.assert_close(merged.image_moments(), slow_moments(images), **CLOSE)


@pytest.mark.filterwarnings("ignore:cannot check whether")
def test_files_states_and_pickles_keep_the_moments(tmp_path):
    model, images = zoo.build("plain"), 100 + zoo.images(10)
    for name, part in (("a", images[:3]), ("b", images[3:])):
        agop.fit(model, [part], False, progress=False).save(tmp_path / name)
    merged = agop.merge([agop.AGOP.load(tmp_path / name) for name in "ba"])
    hook, resumed = (agop.AGOPTrainingHook(model, only_correct=False) for _ in range(2))
    hook.step(images[:3])
    torch.save(hook.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    resumed.step(images[3:])
    for prior in (merged, resumed.finalize(), pickle.loads(pickle.dumps(merged))):
        torch.testing.assert_close(prior.image_moments, slow_moments(images), rtol=1e-5, atol=1e-4)


def test_there_are_no_moments_unless_every_sample_has_an_image():
    model, images = zoo.build("plain"), zoo.images(6)
    hook = agop.AGOPTrainingHook(model, only_correct=False)
    hook.step(images[:3])
    hook.add(agop.input_gradients(model, images[3:]))
    hook.step(images[:3])
    assert hook.finalize().image_moments is None
    whole, without = accumulated(images), Accumulator()
    without.update(torch.ones_like(images), torch.zeros(6).long(), 2)
    assert whole.merge(without).image_moments() is None
    assert without.merge(whole).image_moments() is None
    with pytest.raises(InputError, match=r"images have shape \(5, 3, 12, 12\), gradients \(6, 3, 12, 12\)"):
        hook.add(agop.input_gradients(model, images), images=images[:5])


def test_a_state_of_an_earlier_version_loads_without_moments():
    hook, resumed = (agop.AGOPTrainingHook(CNN8by8(), only_correct=False) for _ in range(2))
    hook.step(torch.randn(3, 1, 8, 8))
    state = hook.state_dict()
    for key in ("moments", "references", "images"):
        del state["sums"][key]
    del state["options"]["references"]
    resumed.load_state_dict(state)
    resumed.step(torch.randn(3, 1, 8, 8))
    assert resumed.finalize().image_moments is None


def test_consistency_is_the_mean_cosine_between_samples_corrected_for_chance():
    """A loop over all pairs; chance is the mean over many shuffles of the positions, the same for all channels."""
    model, images = zoo.build("plain"), zoo.images(6)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    gradients, _ = zoo.per_sample_loop(model, images)
    units = gradients.abs().flatten(1).double()
    units = (units / units.norm(dim=1, keepdim=True)).reshape(6, 3, 144)
    pairs = list(permutations(range(6), 2))
    cosine = sum(float((units[i] * units[j]).sum()) for i, j in pairs) / len(pairs)
    generator = torch.Generator().manual_seed(0)
    shuffled = [units[:, :, torch.randperm(144, generator=generator)] for _ in range(300)]
    mean = units.mean(0)
    chance = sum(float((mean * other.mean(0)).sum()) for other in shuffled) / 300
    assert prior.consistency == pytest.approx((cosine - chance) / (1 - chance), abs=0.01)


def test_consistency_is_1_for_equal_gradients_0_for_shuffled_ones_and_survives_a_merge(tmp_path):
    still = torch.rand(1, 2, 8, 8, generator=torch.Generator().manual_seed(0)) ** 4
    moving = torch.stack([still[0].roll((k // 8, k % 8), (1, 2)) for k in range(64)])
    images = torch.zeros(64, 2, 8, 8)
    direction = moment_sums(images, 3 * still.expand(64, -1, -1, -1))[2] / 64
    assert consistency(direction, 64) == pytest.approx(1)
    assert consistency(moment_sums(images, -moving)[2] / 64, 64) == pytest.approx(0, abs=0.02)
    assert moment_sums(images, torch.zeros_like(images))[2].sum() == 0
    model, images = zoo.build("plain"), zoo.images(7)
    whole, *parts = (
        agop.fit(model, [part], only_correct=False, progress=False) for part in (images, images[:3], images[3:])
    )
    assert agop.merge(parts).consistency == pytest.approx(whole.consistency, abs=1e-5)
    whole.save(tmp_path / "prior.safetensors")
    assert agop.AGOP.load(tmp_path / "prior.safetensors").consistency == whole.consistency
