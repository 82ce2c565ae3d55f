"""Trials of a region of one pixel, with a model that reads only that pixel."""

import dataclasses

import pytest
import torch
from torch import nn

from agop.auditing import trial as trials
from agop.auditing.pool import Half
from agop.auditing.predictor import Asked, Predictor
from agop.auditing.proposals import BORDER, REGION, RegionProposal, property_proposals
from agop.auditing.regions import Box
from agop.auditing.trial import groups_elsewhere, p_more_often, run_trial, screen
from agop.model.probe import probing

PIXEL, SIZE = Box(1, 1, 2, 2), (6, 6)
PROPOSAL = RegionProposal(REGION, 1, "scan", PIXEL.region(SIZE), (Box(4, 4, 5, 5),))


class OnePixel(nn.Module):
    """P(class 1) rises with one pixel."""

    def forward(self, images):
        logit = 8 * images[:, 0, 1, 1] - 4
        return torch.stack([-logit / 2, logit / 2], dim=1)


@pytest.fixture
def asked():
    """40 images of class 1, the last two without a bright pixel, but one of them hardly darker; 200 of class 0."""
    images = torch.zeros(240, 1, *SIZE)
    images[:38, :, 1, 1] = 1
    images[38, :, 1, 1] = 0.9
    half = Half(images, (torch.arange(240) < 40).long(), tuple(map(str, range(240))))
    with probing(OnePixel()) as probe:
        predictor = Predictor(probe, 64)
        yield predictor, Asked.of(predictor, half)


def test_few_control_images_that_differ_are_not_certain(asked):
    """Two images serve as control of 200 pairs: one has the whole effect, the other none."""
    predictor, half = asked
    screening = screen(predictor, half, PROPOSAL, 12, torch.Generator().manual_seed(0))
    screening = dataclasses.replace(screening, contains=torch.arange(40) < 38)
    trial = run_trial(predictor, half, screening, 200, 0.0, torch.Generator().manual_seed(0))
    assert trial.effect.value - trial.control > 0.4
    assert trial.excess.p_above(0.05) > 0.05


@pytest.mark.parametrize("compare", [groups_elsewhere, p_more_often])
def test_responses_are_compared_on_the_same_hosts_without_what_was_found(asked, compare, monkeypatch):
    predictor, half = asked
    screening = screen(predictor, half, PROPOSAL, 12, torch.Generator().manual_seed(0))
    original = trials.change
    keep, seen = torch.zeros(SIZE, dtype=torch.bool), []
    monkeypatch.setattr(trials, "change", lambda *given: seen.append(given) or original(*given))
    generator = () if compare is groups_elsewhere else (torch.Generator(),)
    compare(predictor, half, screening, *generator, keep)
    ((_, pairs, _, kept),) = seen
    assert kept is keep
    assert set(pairs.hosts.tolist()) == set(screening.hosts.tolist())


class Frame(nn.Module):
    """P(class 1) rises with a frame of five pixels."""

    def forward(self, images):
        logit = 8 * (images.sum(dim=(1, 2, 3)) - images[:, :, 5:-5, 5:-5].sum(dim=(1, 2, 3))) / 460 - 4
        return torch.stack([-logit / 2, logit / 2], dim=1)


def test_frame_that_is_wider_than_the_tested_border_is_not_its_own_control():
    images = 0.01 * torch.rand(80, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    images[:20] += 1
    images[:20, :, 5:-5, 5:-5] -= 1
    half = Half(images, (torch.arange(80) < 40).long(), tuple(map(str, range(80))))
    (border,) = [each for each in property_proposals(1, (28, 28)) if each.kind == BORDER]
    with probing(Frame()) as probe:
        predictor = Predictor(probe, 64)
        asked = Asked.of(predictor, half)
        screening = screen(predictor, asked, border, 4, torch.Generator().manual_seed(0))
        assert screening.contains.tolist() == [True] * 20 + [False] * 20
        assert groups_elsewhere(predictor, asked, screening) == 0
