"""Changes are computed in parts, and are those of all pairs at once."""

import pytest
import torch
from torch import nn

from agop.auditing.pool import Half
from agop.auditing.predictor import Asked, Predictor, change
from agop.interventions.colour import Colour
from agop.interventions.remove import Remove
from agop.interventions.transplant_elsewhere import TransplantElsewhere
from agop.model.probe import probing

KEEP = torch.zeros(8, 8, dtype=torch.bool)
KEEP[:3] = True


def interventions(count):
    corners = torch.randint(0, 5, (count, 2), generator=torch.Generator().manual_seed(1))
    return Colour(), Remove(~KEEP), TransplantElsewhere(corners, 3, seed=2)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).double().eval()


@pytest.fixture
def images():
    return torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("keep", [None, KEEP])
def test_parts_give_what_all_pairs_give(net, images, place, keep):
    half, generator = Half(images, torch.arange(20) % 2, tuple(map(str, range(20)))), torch.Generator().manual_seed(0)
    with probing(net) as probe:
        changes = []
        for rows in (100, 3):
            predictor = Predictor(probe, rows)
            asked = Asked.of(predictor, half)
            pairs = asked.pairs(1, asked.members(1), 10, generator.manual_seed(0))
            changes.append(change(predictor, pairs, interventions(10)[place], keep))
    torch.testing.assert_close(changes[0].log_odds, changes[1].log_odds)


def test_few_images_are_changed_at_once(net, images, monkeypatch):
    half = Half(images, torch.arange(20) % 2, tuple(map(str, range(20))))
    most, changed = [], Colour.changed

    def counted(self, hosts, donors):
        most.append(len(hosts))
        return changed(self, hosts, donors)

    monkeypatch.setattr(Colour, "changed", counted)
    with probing(net) as probe:
        predictor = Predictor(probe, 4)
        asked = Asked.of(predictor, half)
        change(predictor, asked.pairs(1, asked.members(1), 10, torch.Generator()), Colour())
    assert most == [4, 4, 2]
