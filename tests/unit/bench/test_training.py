"""Trained together, each network is what it would be alone, and what the plain loop with the hook gives."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from agop.bench.epochs import CHECKPOINT, train_epochs
from agop.bench.pupil import Pupil, Task
from agop.bench.train import train
from agop.errors import AGOPWarning, InputError
from agop.evaluating.scoring import accuracy
from agop.networks import CNN8by8
from agop.scenarios import Recipe, Scenario, Split, get, xai_tris


def tasks(seeds, folder, samples=640):
    made = []
    for seed in seeds:
        training, validation, _ = xai_tris("linear", seed=seed)
        few = Split(training.images[:samples], training.labels[:samples], training.masks[:samples])
        made.append(Task(seed, few, validation, folder / str(seed)))
    return made


def equal(a, b):
    return all(torch.equal(value, b.model.state_dict()[name]) for name, value in a.model.state_dict().items())


def test_the_stacked_network_is_the_networks(tmp_path):
    torch.manual_seed(0)
    models = [CNN8by8() for _ in range(3)]
    images = torch.randn(3, 20, 1, 8, 8)
    weights = {name: torch.stack([m.get_parameter(name) for m in models]) for name, _ in models[0].named_parameters()}
    apart = torch.stack([model(part) for model, part in zip(models, images, strict=True)])
    torch.testing.assert_close(CNN8by8.stacked_forward(weights, images), apart)


def test_a_network_does_not_depend_on_those_trained_beside_it(tmp_path):
    """To the bit: so that seeds can be added, and a run that was killed can go on with the seeds that are missing."""
    heard = []
    three = train(get("linear"), tasks((0, 1, 2), tmp_path / "a"), 21, heard.append)
    one = train(get("linear"), tasks((1,), tmp_path / "b"), 21, lambda _: None)
    assert equal(three[1], one[0])
    assert not equal(three[0], three[1])
    assert torch.equal(three[1].prior.diagonal, one[0].prior.diagonal)
    assert three[1].prior.count == one[0].prior.count
    assert (tmp_path / "a" / "1" / "snapshots" / "step-00000100.safetensors").exists()
    assert heard[-1] == 1


def plain_scenario(**recipe):
    network = partial(CNN8by8)  # which does not say that it can train together
    made = Recipe(**({"snapshot_every": None} | recipe))
    return Scenario("plain", "none", get("linear").make, network, "conv3", ("uncorrelated",), recipe=made)


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle"])
def test_a_training_that_stopped_goes_on_to_the_same_end(tmp_path, schedule):
    scenario = plain_scenario(optimizer="adamw", schedule=schedule, flips=True, best=True)
    noted = []

    def task(folder):
        (made,) = tasks((3,), folder)
        return replace(made, watch=lambda model, prior: [{"count": prior.count}])

    (whole,) = train(scenario, [task(tmp_path / "whole")], 4, noted.append)
    pupil = Pupil.starting(scenario, task(tmp_path / "cut"))
    for done in train_epochs(pupil, scenario.recipe, 4):
        if done > 0.6:
            break  # in the third epoch
    (again,) = train(scenario, [task(tmp_path / "cut")], 4, noted.append)
    assert equal(whole, again)
    assert torch.equal(whole.prior.diagonal, again.prior.diagonal)
    assert whole.noted == again.noted
    assert len(whole.noted) == 4


def test_a_checkpoint_that_cannot_be_read_is_not_used(tmp_path):
    scenario = plain_scenario()
    (whole,) = train(scenario, tasks((3,), tmp_path / "whole"), 1, lambda _: None)
    for name, content in (("cut", b"PK"), ("other", None)):
        (task,) = tasks((3,), tmp_path / name)
        task.folder.mkdir(parents=True)
        if content is None:
            torch.save({"epoch": 1}, task.folder / CHECKPOINT)
        else:
            (task.folder / CHECKPOINT).write_bytes(content)
        with pytest.warns(AGOPWarning, match="begins anew"):
            (again,) = train(scenario, [task], 1, lambda _: None)
        assert equal(whole, again)


def test_the_best_epoch_s_weights_are_kept(tmp_path):
    """With a step size that ruins the network in the end: the last weights are worse than the best."""
    (task,) = tasks((0,), tmp_path / "best", samples=4000)
    (best,) = train(plain_scenario(best=True, learning_rate=5e-2), [task], 6, lambda _: None)
    (task,) = tasks((0,), tmp_path / "last", samples=4000)
    scenario = plain_scenario(best=False, learning_rate=5e-2)
    reached = []
    held = task.validation.images, task.validation.labels
    task = replace(task, watch=lambda model, prior: reached.append(accuracy(model, *held)) or [])
    (last,) = train(scenario, [task], 6, lambda _: None)
    assert accuracy(best.model, *held) == max(reached)
    assert accuracy(last.model, *held) == reached[-1]


def test_what_cannot_be_trained_together_is_refused(tmp_path):
    scenario = replace(get("linear"), recipe=Recipe(flips=True))
    with pytest.raises(InputError, match="without flips"):
        train(scenario, tasks((0,), tmp_path), 1, lambda _: None)


def test_together_is_the_plain_loop_with_the_hook(tmp_path):
    plain = plain_scenario(snapshot_every=100)
    fast = train(get("linear"), tasks((0, 1), tmp_path / "a"), 8, lambda _: None)
    slow = train(plain, tasks((0, 1), tmp_path / "b"), 8, lambda _: None)
    for a, b in zip(fast, slow, strict=True):
        assert a.prior.count == b.prior.count
        torch.testing.assert_close(a.prior.diagonal, b.prior.diagonal, rtol=1e-3, atol=1e-9)
        for name, value in a.model.state_dict().items():
            torch.testing.assert_close(value, b.model.state_dict()[name], rtol=1e-3, atol=1e-5)
