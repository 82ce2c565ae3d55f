"""Which screened proposals are tested."""

from dataclasses import replace

import torch

from agop.auditing.grouping import Rule
from agop.auditing.places import region_proposals
from agop.auditing.regions import Box
from agop.auditing.searching import _has_groups_of_another, _passes
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
    assert _has_groups_of_another(colour, [colour, border], [colour])
    assert not _has_groups_of_another(colour, [colour, border], [colour, border])  # the border has an effect as well
    assert not _has_groups_of_another(colour, [colour, screening(framed, 9.0)], [colour])  # hardly clearer
    others = screening(torch.arange(40) % 4 < 2, 20.0)
    assert not _has_groups_of_another(colour, [colour, others], [colour])  # other groups


def test_what_a_whole_class_shares_must_be_clearer():
    half = torch.arange(40) < 20
    assert _passes(screening(half, 5.0))
    assert not _passes(screening(half, 5.0, shared=True))
    assert _passes(screening(half, 8.0, shared=True))
