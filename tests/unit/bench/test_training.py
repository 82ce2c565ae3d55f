"""Training: networks trained together equal those trained alone, and those of the plain loop with the hook."""

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
    result = []
    for seed in seeds:
        training, validation, _ = xai_tris("linear", seed=seed)
        few = Split(training.images[:samples], training.labels[:samples], training.masks[:samples])
        result.append(Task(seed, few, validation, folder / str(seed)))
    return result


def equal(a, b):
    return all(torch.equal(value, b.model.state_dict()[name]) for name, value in a.model.state_dict().items())


def test_stacked_forward_equals_the_separate_networks():
    torch.manual_seed(0)
    models = [CNN8by8() for _ in range(3)]
    images = torch.randn(3, 20, 1, 8, 8)
    weights = {name: torch.stack([m.get_parameter(name) for m in models]) for name, _ in models[0].named_parameters()}
    apart = torch.stack([model(part) for model, part in zip(models, images, strict=True)])
    torch.testing.assert_close(CNN8by8.stacked_forward(weights, images), apart)


def test_network_does_not_depend_on_those_trained_beside_it(tmp_path):
    """Bitwise: seeds can be added, and a killed run can resume with its missing seeds."""
    fractions = []
    three = train(get("linear"), tasks((0, 1, 2), tmp_path / "a"), 21, fractions.append)
    one = train(get("linear"), tasks((1,), tmp_path / "b"), 21, lambda _: None)
    assert equal(three[1], one[0])
    assert not equal(three[0], three[1])
    assert torch.equal(three[1].prior.diagonal, one[0].prior.diagonal)
    assert three[1].prior.count == one[0].prior.count
    assert (tmp_path / "a" / "1" / "snapshots" / "step-00000100.safetensors").exists()
    assert fractions[-1] == 1


def plain_scenario(**recipe):
    network = partial(CNN8by8)  # hides stacked_forward
    recipe = Recipe(**({"snapshot_every": None} | recipe))
    return Scenario("plain", "none", get("linear").make, network, "conv3", ("uncorrelated",), recipe=recipe)


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle"])
def test_resumed_training_equals_an_uninterrupted_one(tmp_path, schedule):
    scenario = plain_scenario(optimizer="adamw", schedule=schedule, flips=True, best=True)

    def task(folder):
        (plain,) = tasks((3,), folder)
        return replace(plain, watch=lambda model, prior: [{"count": prior.count}])

    (whole,) = train(scenario, [task(tmp_path / "whole")], 4, lambda _: None)
    pupil = Pupil.starting(scenario, task(tmp_path / "cut"))
    for done in train_epochs(pupil, scenario.recipe, 4):
        if done > 0.6:
            break  # in the third epoch
    (again,) = train(scenario, [task(tmp_path / "cut")], 4, lambda _: None)
    assert equal(whole, again)
    assert torch.equal(whole.prior.diagonal, again.prior.diagonal)
    assert whole.noted == again.noted
    assert len(whole.noted) == 4


def test_unreadable_checkpoint_warns_and_training_starts_again(tmp_path):
    scenario = plain_scenario()
    (whole,) = train(scenario, tasks((3,), tmp_path / "whole"), 1, lambda _: None)
    for name, content in (("cut", b"PK"), ("other", None)):
        (task,) = tasks((3,), tmp_path / name)
        task.folder.mkdir(parents=True)
        if content is None:
            torch.save({"epoch": 1}, task.folder / CHECKPOINT)
        else:
            (task.folder / CHECKPOINT).write_bytes(content)
        with pytest.warns(AGOPWarning, match="training starts again"):
            (again,) = train(scenario, [task], 1, lambda _: None)
        assert equal(whole, again)


def test_weights_of_the_best_epoch_are_kept(tmp_path):
    """With a learning rate that ruins the network: the last weights are worse than the best."""
    (task,) = tasks((0,), tmp_path / "best", samples=4000)
    (best,) = train(plain_scenario(best=True, learning_rate=5e-2), [task], 6, lambda _: None)
    (task,) = tasks((0,), tmp_path / "last", samples=4000)
    scenario = plain_scenario(best=False, learning_rate=5e-2)
    accuracies = []
    validation = task.validation.images, task.validation.labels
    task = replace(task, watch=lambda model, prior: accuracies.append(accuracy(model, *validation)) or [])
    (last,) = train(scenario, [task], 6, lambda _: None)
    assert accuracy(best.model, *validation) == max(accuracies)
    assert accuracy(last.model, *validation) == accuracies[-1]


def test_recipe_that_cannot_be_trained_together_raises(tmp_path):
    scenario = replace(get("linear"), recipe=Recipe(flips=True))
    with pytest.raises(InputError, match="without flips"):
        train(scenario, tasks((0,), tmp_path), 1, lambda _: None)


def test_training_together_equals_the_plain_loop_with_the_hook(tmp_path):
    plain = plain_scenario(snapshot_every=100)
    fast = train(get("linear"), tasks((0, 1), tmp_path / "a"), 8, lambda _: None)
    slow = train(plain, tasks((0, 1), tmp_path / "b"), 8, lambda _: None)
    for a, b in zip(fast, slow, strict=True):
        assert a.prior.count == b.prior.count
        torch.testing.assert_close(a.prior.diagonal, b.prior.diagonal, rtol=1e-3, atol=1e-9)
        for name, value in a.model.state_dict().items():
            torch.testing.assert_close(value, b.model.state_dict()[name], rtol=1e-3, atol=1e-5)
