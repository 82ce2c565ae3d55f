"""Training: networks trained together equal those trained alone, and those of the plain loop with the hook."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from agop.bench import LLR, CNN8by8, MLP8by8
from agop.bench.scenarios import Recipe, Scenario, Split, get
from agop.bench.training import Task, TrainingRun, stacked, train, train_epochs, train_stacked
from agop.errors import GradientError
from agop.evaluation.scoring import accuracy


def tasks(scenario, seeds, folder, samples=640):
    result = []
    for seed in seeds:
        training, validation, _ = scenario.splits("uncorrelated", seed)
        few = Split(training.images[:samples], training.labels[:samples], training.masks[:samples])
        result.append(Task(scenario, seed, few, validation, folder / str(seed)))
    return result


def ignore(fraction):
    pass


def equal(a, b):
    return all(torch.equal(value, b.model.state_dict()[name]) for name, value in a.model.state_dict().items())


def plain_scenario(**recipe):
    network = partial(CNN8by8)  # hides stacked_forward
    recipe = Recipe(**({"snapshot_every": None} | recipe))
    return Scenario("plain", "none", get("linear").make, network, "conv3", ("uncorrelated",), ("own",), recipe=recipe)


def test_network_equals_those_trained_alone_and_by_the_plain_loop_with_the_hook(tmp_path):
    """Alone: bitwise, so that seeds can be added, and a killed run can resume with its missing seeds."""
    fractions = []
    stacked, plain = replace(get("linear"), recipe=Recipe(snapshot_every=20)), plain_scenario(snapshot_every=20)
    other, beside, _ = train(tasks(stacked, (0, 1, 2), tmp_path / "a"), 8, fractions.append)
    assert not equal(other, beside)
    assert fractions[-1] == 1
    assert fractions == sorted(fractions)
    assert (tmp_path / "a" / "1" / "snapshots" / "step-00000020.safetensors").exists()
    (alone,) = train(tasks(stacked, (1,), tmp_path / "b"), 8, ignore)
    assert equal(beside, alone)
    assert torch.equal(beside.prior.diagonal, alone.prior.diagonal)
    (slow,) = train(tasks(plain, (1,), tmp_path / "c"), 8, ignore)
    torch.testing.assert_close(beside.prior.diagonal, slow.prior.diagonal, rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(beside.prior.patch_matrix, slow.prior.patch_matrix, rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(beside.prior.image_moments, slow.prior.image_moments, rtol=1e-3, atol=1e-4)
    assert beside.prior.layer == slow.prior.layer == "conv1"
    for name, value in beside.model.state_dict().items():
        torch.testing.assert_close(value, slow.model.state_dict()[name], rtol=1e-3, atol=1e-5)
    assert beside.prior.count == alone.prior.count == slow.prior.count


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle"])
def test_resumed_training_equals_an_uninterrupted_one(tmp_path, schedule):
    scenario = plain_scenario(optimizer="adamw", schedule=schedule, flips=True, best=True)

    def task(folder):
        (plain,) = tasks(scenario, (3,), folder)
        return replace(plain, watch=lambda model, prior: [{"count": prior.count}])

    (whole,) = train([task(tmp_path / "whole")], 4, ignore)
    run = TrainingRun(task(tmp_path / "cut"))
    for done in train_epochs(run, 4, 4):
        if done > 0.6:
            break  # in the third epoch
    (again,) = train([task(tmp_path / "cut")], 4, ignore)
    assert equal(whole, again)
    assert torch.equal(whole.prior.diagonal, again.prior.diagonal)
    assert whole.noted == again.noted
    assert len(whole.noted) == 4


@pytest.mark.parametrize("best", [True, False])
def test_weights_of_the_best_or_last_epoch_are_kept(tmp_path, best):
    """Validation labels are swapped: the better the network learns, the worse it looks."""
    (task,) = tasks(plain_scenario(best=best, batch=16, learning_rate=0.01), (0,), tmp_path)
    validation = replace(task.validation, labels=1 - task.validation.labels)
    accuracies = []

    def watch(model, prior):
        accuracies.append(accuracy(model, validation.images, validation.labels))
        return []

    task = replace(task, validation=validation, watch=watch)
    (trained,) = train([task], 3, ignore)
    assert accuracies[-1] < max(accuracies)
    kept = max(accuracies) if best else accuracies[-1]
    assert accuracy(trained.model, validation.images, validation.labels) == kept


def test_networks_of_several_scenarios_train_together_and_resume_from_their_checkpoints(tmp_path, monkeypatch):
    """Killed in the middle, then resumed in other groups: bit for bit the same networks."""
    monkeypatch.setattr("agop.bench.training.CHECKPOINT_SECONDS", 0)
    recipe = Recipe(snapshot_every=20)
    linear, xor = (replace(get(name), recipe=recipe) for name in ("linear", "xor"))

    def both(folder):
        return [*tasks(linear, (0, 1), folder / "linear"), *tasks(xor, (0,), folder / "xor")]

    whole = train(both(tmp_path / "whole"), 4, ignore)
    runs = [TrainingRun(task) for task in both(tmp_path / "cut")]
    for stack, until in ((runs[:1], 0.4), (runs[1:], 0.7)):  # one epoch, and two
        for done in train_stacked(stack, 4, 4):
            if done > until:
                break
    assert [TrainingRun(task).epoch for task in both(tmp_path / "cut")] == [2, 3, 3]
    for one, again in zip(whole, train(both(tmp_path / "cut"), 4, ignore), strict=True):
        assert equal(one, again)
        assert torch.equal(one.prior.diagonal, again.prior.diagonal)
        assert one.prior.count == again.prior.count


@pytest.mark.parametrize("stackable", [True, False])
def test_network_that_does_not_learn_is_trained_again_from_another_initialization(tmp_path, stackable):
    scenario = replace(get("linear") if stackable else plain_scenario(), recipe=Recipe(snapshot_every=5))
    easy, hard = replace(scenario, learned=0.1), replace(scenario, learned=1.1)
    (good,) = tasks(easy, (0,), tmp_path / "easy")
    (bad,) = tasks(hard, (0,), tmp_path / "hard")
    fractions = []
    first, last = train([good, bad], 1, fractions.append, restarts=2)
    assert fractions == sorted(fractions)
    assert (first.learned, len(first.attempts)) == (True, 1)
    assert (last.learned, len(last.attempts)) == (False, 3)
    assert last.attempts[0] == first.attempts[0]  # the same data and initialization
    assert not equal(first, last)
    # A training that is killed in its third attempt resumes there.
    run = TrainingRun(bad)
    assert (run.failed, run.epoch) == (list(last.attempts[:2]), 1)
    (again,) = train([bad], 1, ignore, restarts=2)
    assert equal(last, again)
    assert again.attempts == last.attempts


def test_stacked_networks_with_infinite_logits_raise(tmp_path):
    """In the first step, before the weights are NaN: the gradient of an infinite logit may be finite."""
    scenario = replace(get("linear"), recipe=Recipe(batch=100_000))
    runs = [TrainingRun(task) for task in tasks(scenario, (0, 1), tmp_path)]
    runs[1].model.fc.bias.data[0] = torch.inf
    with pytest.raises(GradientError, match="infinite"):
        list(train_stacked(runs, 1, 1))


@pytest.mark.parametrize("network", [CNN8by8, MLP8by8, LLR])
def test_stacked_networks_equal_each_network_alone(network):
    """The networks' own forward pass up to rounding, and a stack of one bit for bit, gradients included."""
    torch.manual_seed(0)
    models, images = [network() for _ in range(3)], torch.randn(3, 5, 1, 8, 8)
    expected = torch.stack([model(batch) for model, batch in zip(models, images, strict=True)])
    logits, gradients = logits_and_gradients(network, models, images)
    torch.testing.assert_close(logits, expected)
    for place, model in enumerate(models):
        alone, own_gradients = logits_and_gradients(network, [model], images[place : place + 1])
        assert torch.equal(alone[0], logits[place])
        for own, beside in zip(own_gradients, gradients, strict=True):
            assert torch.equal(own[0], beside[place])


def logits_and_gradients(network, models, images):
    weights = stacked(models)
    logits = network.stacked_forward(weights, images)
    return logits, torch.autograd.grad(logits.square().sum(), list(weights.values()))
