"""The exponent of agop's factor where: chosen without masks by `fit` and the hook, and kept in the file."""

import pytest
import torch
from torch import nn

import agop


class Corner(nn.Module):
    """Only the 3×3 pixels at the top left decide; the patterns there are like those elsewhere."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        with torch.no_grad():
            self.stem.bias.zero_()

    def forward(self, x):
        evidence = self.stem(x)[:, 0, :3, :3].mean((1, 2)) * 6
        return torch.stack([-evidence, evidence], dim=1)


class Everywhere(Corner):
    """The pixels of the whole image decide alike."""

    def forward(self, x):
        evidence = self.stem(x).square().mean((1, 2, 3))
        return torch.stack([-evidence, evidence], dim=1)


def batches(count=4):
    images = torch.randn(64 * count, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return list(images.split(64))


def fit(model, **options):
    return agop.fit(model, batches(), only_correct=False, progress=False, **options)


def test_fit_chooses_a_large_exponent_where_a_place_decides_and_the_file_keeps_it(tmp_path):
    prior = fit(Corner())
    tuned = prior.provenance.tuned
    assert tuned["where"] >= 2
    assert tuned["srg"].keys() == {"0", "1", "2", "4", "8"}
    assert tuned["srg"]["0"] < tuned["srg"][str(tuned["where"])]
    prior.save(tmp_path / "prior.safetensors")
    loaded = agop.AGOP.load(tmp_path / "prior.safetensors")
    assert loaded.provenance.tuned == tuned
    assert fit(Corner()).provenance.tuned == tuned  # deterministic


@pytest.mark.parametrize(("model", "options"), [(Corner(), {"tune": False}), (Everywhere(), {})])
def test_nothing_is_chosen_on_request_and_for_an_even_diagonal(model, options):
    assert fit(model, **options).provenance.tuned == {}


def test_the_hook_chooses_on_its_last_batch_and_leaves_the_model_as_it_was():
    model = Corner().train()
    hook = agop.AGOPTrainingHook(model, only_correct=False)
    for images in batches():
        hook.step(images)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert hook.finalize(tune=False).provenance.tuned == {}
    assert hook.finalize().provenance.tuned["where"] >= 2
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
