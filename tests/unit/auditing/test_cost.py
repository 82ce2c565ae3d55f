"""The cost of an audit, stated before its work."""

import re

import pytest
from torch import nn

import agop
from tests import shortcuts


class Counted(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.images = net, 0

    def forward(self, images):
        self.images += len(images)
        return self.net(images)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.7])
def test_estimated_forward_passes_are_of_the_right_order(share, capsys):
    images, labels = shortcuts.drawn(360, share)
    model = Counted(shortcuts.trained(images, labels)).eval()
    agop.audit(model, images, labels, per_class=100)
    line = capsys.readouterr().err.splitlines()[0]
    match = re.fullmatch(r"3 classes, 300 images at 16 px: about ([\d,]+) forward passes, about \d+ s", line)
    estimated = int(match[1].replace(",", ""))
    assert 1 / 2 < estimated / model.images < 2


def test_nothing_is_printed_without_progress(capsys):
    images, labels = shortcuts.drawn(120, 0.0)
    agop.audit(shortcuts.trained(images, labels), images, labels, per_class=20, progress=False)
    assert capsys.readouterr() == ("", "")
