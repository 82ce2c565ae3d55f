"""Of two classes, one has a pattern and the other lacks it."""

import pytest
import torch

from agop.auditing.absences import without_absences
from agop.auditing.grouping import Rule
from agop.auditing.intervals import Mean
from agop.auditing.proposals import PATCH, REGION, PatchProposal, RegionProposal, property_proposals
from agop.auditing.regions import Box
from agop.auditing.trial import Screening, Trial, variety

BOX = Box(2, 2, 6, 6)
# Images 0–19 are of class 0, those at even positions have a constant patch. The rest is of class 1, without it.
IMAGES = torch.rand(40, 1, 12, 12, generator=torch.Generator().manual_seed(0))
IMAGES[0:20:2, :, 2:6, 2:6] = 0.5


def region(class_index, box=BOX):
    return RegionProposal(REGION, class_index, "scan", box.region((12, 12)), ())


def trial(proposal):
    """Every second image of the class "contains" it."""
    members = torch.arange(20) + 20 * proposal.class_index
    contains = torch.arange(20) % 2 == 0
    screening = Screening(proposal, members, contains.double(), Rule(None, True), contains, 9.0, 0.0, 0.5, members[:4])
    mean, nothing = Mean(0.5, 0.01, 10), torch.zeros(0)
    return Trial(
        screening, mean, 0.0, mean, 0.5, 0.0, 0.0, nothing, nothing, nothing, variety=variety(screening, IMAGES)
    )


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_only_the_presence_stays(order):
    """The images with the patch look alike there. Those that only lack it don't."""
    trials = [trial(region(index)) for index in order]
    assert [each.proposal.class_index for each in without_absences(trials)] == [0]


def test_another_place_another_kind_and_the_same_class_stay():
    colour = property_proposals(1, (12, 12))[0]
    for others in (region(1, Box(8, 8, 12, 12)), colour, region(0, Box(3, 3, 7, 7))):
        trials = [trial(region(0)), trial(others)]
        assert without_absences(trials) == trials


@pytest.mark.parametrize(("same", "left"), [(True, 1), (False, 2)])
def test_patches_that_move_are_one_if_they_look_alike(same, left):
    first, second = torch.rand(2, 1, 3, 3, generator=torch.Generator().manual_seed(3))
    templates = (first, 0.5 * first + 0.1 if same else second)
    trials = [trial(PatchProposal(PATCH, index, "maps", template)) for index, template in enumerate(templates)]
    assert len(without_absences(trials)) == left
