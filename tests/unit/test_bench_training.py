"""Trained together, each network is what it would be alone, and what the plain loop with the hook gives."""

from functools import partial

import torch

from agop.bench.training import Task, train
from agop.networks import CNN8by8
from agop.scenarios import Scenario, Split, get, xai_tris


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
    torch.testing.assert_close(CNN8by8.together(weights, images), apart)


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


def test_together_is_the_plain_loop_with_the_hook(tmp_path):
    network = partial(CNN8by8)  # which does not say that it can train together
    plain = Scenario("plain", "none", get("linear").make, network, "conv3", ("uncorrelated",))
    fast = train(get("linear"), tasks((0, 1), tmp_path / "a"), 8, lambda _: None)
    slow = train(plain, tasks((0, 1), tmp_path / "b"), 8, lambda _: None)
    for a, b in zip(fast, slow, strict=True):
        assert a.prior.count == b.prior.count
        torch.testing.assert_close(a.prior.diagonal, b.prior.diagonal, rtol=1e-3, atol=1e-9)
        for name, value in a.model.state_dict().items():
            torch.testing.assert_close(value, b.model.state_dict()[name], rtol=1e-3, atol=1e-5)
