"""repair(): the last layer no longer uses what was found, the model stays, the second half takes no part."""

import numpy as np
import pytest
import torch
from torch import nn

import agop
from agop.auditing.data import AuditedModel, read_sample
from agop.auditing.repair import Repair, fit_head, versions
from agop.errors import InputError, LayerError
from tests import shortcuts

COUNT = 360


def audited(model, images, **options):
    return agop.audit(model, *images, per_class=80, progress=False, **options)


@pytest.fixture(scope="module")
def images():
    return shortcuts.drawn(COUNT, 0.7)


@pytest.fixture(scope="module")
def model(images):
    return shortcuts.trained(*images)


@pytest.fixture(scope="module")
def audit(model, images):
    return audited(model, images, seed=3)


@pytest.fixture(scope="module")
def repaired(model, images, audit):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = Repair.of(model, audit, *images, progress=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return result


def accuracies(model):
    """On new images without a patch, and with a patch in all of them."""
    images, labels = shortcuts.drawn(150, 0.0, seed=9)
    patched = shortcuts.PLANTS["patch"](images.clone())
    return [float((model(each).argmax(dim=1) == labels).double().mean()) for each in (images, patched)]


def test_patch_no_longer_decides(model, repaired):
    (without, patched), (new_without, new_patched) = accuracies(model), accuracies(repaired.model)
    assert patched < 0.6
    assert new_patched > 0.85
    assert new_without > without - 0.05


def test_verdict_and_groups_are_those_of_the_images_that_tested(repaired, model, audit, images):
    (row,) = repaired.rows
    assert row.verdict == "removed"
    assert row.other_effect < 0.05 < row.effect
    before, after = repaired.groups[0]
    assert before.shape == (2, 3)  # without and with it, by class
    assert before[1].min() < 0.5 < after.min()
    assert "removed" in repaired.lines[1]
    assert f"worst group {100 * before.min():.0f} → {100 * after.min():.0f} %" in repaired.lines[1]
    sample = read_sample(model, *images, 80, 3, progress=False)
    second = sample.halves()[1]
    shares = [float((m(second.images).argmax(dim=1) == second.labels).double().mean()) for m in (model, repaired.model)]
    assert repaired.accuracy == pytest.approx(shares)


def test_only_the_last_layer_differs(model, repaired):
    new = repaired.model.state_dict()
    assert {name for name, value in model.state_dict().items() if not torch.equal(value, new[name])} == {
        "7.weight", "7.bias",
    }  # fmt: skip


def test_second_half_takes_no_part(model, audit, images, repaired):
    pictures, labels = images[0].clone(), images[1]
    second = [
        int(picture) for picture in read_sample(model, pictures, labels, 80, 3, progress=False).halves()[1].pictures
    ]
    pictures[second] = torch.rand(pictures[second].shape)
    again = agop.repair(model, audit, pictures, labels, progress=False)
    assert torch.equal(again[7].weight, repaired.model[7].weight)


@pytest.mark.parametrize(("plant", "kind"), [("frame", "border"), ("grid", "high frequency")])
def test_properties_are_repaired(plant, kind):
    images = shortcuts.drawn(COUNT, 0.7, plant=plant)
    model = shortcuts.trained(*images)
    audit = audited(model, images)
    repaired = Repair.of(model, audit, *images, progress=False)
    (row,) = [row for row in repaired.rows if row.finding.kind == kind]
    assert row.verdict in ("removed", "reduced")
    assert repaired.groups[:, 1].min() > repaired.groups[:, 0].min()


def test_versions_differ_in_the_region_only(model, audit, images):
    sample = read_sample(model, *images, 80, 3, progress=False)
    (finding,) = audit.findings
    with AuditedModel.of(model, sample) as both:
        screening, (without, having) = versions(both.first, finding, 3)
        every = slice(0, len(both.first.split.labels))
        originals = both.first.split.images
        for changed in (without(every), having(every)):
            assert torch.equal(changed[..., ~finding.region], originals[..., ~finding.region])
        patch = finding.region.nonzero()[:, 0].min(), finding.region.nonzero()[:, 1].min()
        assert not torch.equal(without(every), having(every))
        # The checker is in all images, or in none.
        spread = [
            float(changed[:, 0][:, finding.region].std(dim=1).mean()) for changed in (without(every), having(every))
        ]
    assert spread[1] > 0.4 > 0.2 > spread[0], (spread, patch)
    assert set(screening.carriers.tolist()) <= set(screening.members.tolist())


def test_head_is_the_least_squares_solution():
    """As one system of equations: both versions, their difference, and a small multiple of the weights."""
    random = np.random.default_rng(0)
    features, labels = random.standard_normal((2, 2, 60, 5)), random.integers(0, 3, 60)
    weight, bias = fit_head(features, labels, 3)
    shares = 1 / np.bincount(labels)[labels]
    shares = shares / shares.sum()
    middle, level = np.einsum("n,fvnd->d", shares, features) / 4, shares @ np.eye(3)[labels]
    centred = features - middle
    trace = np.einsum("n,fvnd,fvnd->", shares, centred, centred) / 4
    rows = (centred * np.sqrt(shares / 4)[:, None]).reshape(-1, 5)
    change = ((features[:, 1] - features[:, 0]) * np.sqrt(shares / 2)[:, None]).reshape(-1, 5)
    wanted = np.tile((np.eye(3)[labels] - level) * np.sqrt(shares / 4)[:, None], (4, 1))
    matches = []
    for ridge in 10.0 ** np.arange(-3, 2):
        small = np.sqrt(ridge * trace / 5) * np.eye(5)
        system = np.concatenate([rows, change, small])
        slow = np.linalg.lstsq(system, np.concatenate([wanted, np.zeros((len(change) + 5, 3))]), rcond=None)[0].T
        scale = float((weight * slow).sum() / (slow * slow).sum())
        matches.append(np.allclose(weight, scale * slow) and np.allclose(bias, scale * (level - slow @ middle)))
    assert sum(matches) == 1


class OneLogit(nn.Module):
    """Class 1 against the others, by one logit, with a head without a bias."""

    def __init__(self, model):
        super().__init__()
        self.body, self.head = model[:7], nn.Linear(256, 1, bias=False)
        self.head.weight.data = (model[7].weight[1:2] - model[7].weight[[0, 2]].mean(dim=0)).detach()

    def forward(self, x):
        return self.head(self.body(x))


def test_one_logit_without_a_bias(model, images):
    pictures, labels = images[0], (images[1] == shortcuts.PLANTED).long()
    binary = OneLogit(model).eval()
    audit = agop.audit(binary, pictures, labels, per_class=80, progress=False)
    assert audit.findings
    repaired = Repair.of(binary, audit, pictures, labels, progress=False)
    assert repaired.model.head.weight.shape == (1, 256)
    assert repaired.rows[0].other_effect < repaired.rows[0].effect / 2


# --- Bad input


def test_audit_without_findings_or_of_another_model_raises(model, images, audit):
    clean = shortcuts.drawn(COUNT, 0.0)
    honest = shortcuts.trained(*clean)
    with pytest.raises(InputError, match="the audit has no findings: there is nothing to repair"):
        agop.repair(honest, audited(honest, clean), *clean, progress=False)
    with pytest.raises(InputError, match="the audit is of another model, or of other weights"):
        agop.repair(honest, audit, *images, progress=False)
    untrained = nn.Sequential(nn.Flatten(), nn.Linear(images[0][0].numel(), 3)).eval()
    at_chance = audited(untrained, images)
    assert at_chance.at_chance
    with pytest.raises(InputError, match="the audit has no findings"):
        agop.repair(untrained, at_chance, *images, progress=False)


def test_labels_of_other_images_raise(model, audit, images):
    mixed = images[1][torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))]
    with pytest.raises(InputError, match="hardly better than chance: nothing was repaired"):
        agop.repair(model, audit, images[0], mixed, progress=False)


class Pooled(nn.Module):
    """The same network with a temperature after the last layer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x) / 2


def test_head_that_cannot_be_found_raises(model, images):
    pooled = Pooled(model).eval()
    audit = audited(pooled, images)
    with pytest.raises(LayerError, match=r"no linear layer of the model returns its logits: .* layer="):
        agop.repair(pooled, audit, *images, progress=False)
    with pytest.raises(LayerError, match=r"layer 'model.0' isn't a linear layer with 3 outputs"):
        agop.repair(pooled, audit, *images, layer="model.0", progress=False)
    with pytest.raises(LayerError, match="the model has no layer 'fc'"):
        agop.repair(pooled, audit, *images, layer="fc", progress=False)
    assert accuracies(agop.repair(pooled, audit, *images, layer="model.7", progress=False))[1] > 0.85


def test_network_without_a_linear_layer_cannot_be_repaired(model, images):
    head = nn.Conv2d(16, 3, 4)
    head.weight.data, head.bias.data = model[7].weight.detach().view(3, 16, 4, 4), model[7].bias.detach()
    same = nn.Sequential(*model[:6], head, nn.Flatten()).eval()
    with pytest.raises(LayerError, match="the model has no linear layer"):
        agop.repair(same, audited(same, images), *images, progress=False)
