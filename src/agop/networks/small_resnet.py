"""A small residual network for images of 32×32 or 64×64."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agop.networks.resnet18 import BasicBlock


class SmallResNet(nn.Module):
    """A stem and three stages of one block, 16, 32 and 64 channels wide: logits (N,classes) of RGB images (N,3,H,W).

    The second and the third stage have a stride of 2. Up to the mean over all positions it is convolutional, so it
    accepts images of any size.
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = BasicBlock(16, 16, 1)
        self.layer2 = BasicBlock(16, 32, 2)
        self.layer3 = BasicBlock(32, 64, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)
        # Channels last: faster on a CPU.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's types

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits
