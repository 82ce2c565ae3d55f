"""Which screened proposals are tested."""

from dataclasses import replace

import torch

from agop.auditing.choosing import has_groups_of_another, may_be_the_object
from agop.auditing.grouping import Rule
from agop.auditing.places import region_proposals
from agop.auditing.regions import Box
from agop.auditing.trial import Screening

(REGION,) = region_proposals(0, {"scan": [Box(0, 0, 4, 4).region((16, 16))]}, (16, 16), 0)


def screening(contains, separation, shared=False):
    responses = contains.double()
    members = torch.arange(len(contains))
    proposal = replace(REGION, shared=shared)
    return Screening(proposal, members, responses, Rule(None, True), contains, separation, 0.0, 0.5, members[:4])


def test_groups_that_are_those_of_something_without_effect_are_not_tested():
    """Images without a frame, which the model ignores, show the colours of their class."""
    framed = torch.arange(40) % 2 == 0
    colour, border = screening(~framed, 5.0), screening(framed[:30], 20.0)  # the first look has fewer images
    assert has_groups_of_another(colour, [colour, border], [colour])
    assert not has_groups_of_another(colour, [colour, border], [colour, border])  # the border has an effect as well
    assert not has_groups_of_another(colour, [colour, screening(framed, 9.0)], [colour])  # hardly clearer
    others = screening(torch.arange(40) % 4 < 2, 20.0)
    assert not has_groups_of_another(colour, [colour, others], [colour])  # other groups


def test_what_a_whole_class_shares_is_the_object_unless_it_is_very_clear_or_always_the_same():
    half = torch.arange(40) < 20
    images = torch.rand(40, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    same = images[:1].expand(40, -1, -1, -1)
    assert may_be_the_object(screening(half, 5.0, shared=True), images)
    assert not may_be_the_object(screening(half, 5.0, shared=True), same)
    assert not may_be_the_object(screening(half, 8.0, shared=True), images)
    assert not may_be_the_object(screening(half, 5.0), images)
