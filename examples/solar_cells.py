"""Find, prove and repair what nobody planted: the type of solar cells. `python examples/solar_cells.py ELPV OUT`

ELPV is the folder with labels.csv of https://github.com/zae-bayern/elpv-dataset (CC BY-NC-SA 4.0). A small network is
trained on 560 cells, 90 % of the defective ones monocrystalline. Writes the page of the audit. Five minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import agop
from agop.auditing.repair import Repair
from agop.bench import SmallResNet
from agop.bench.natural import CLASSES, SIDE, parts
from agop.images.datasets import read_cells

images, defects, types = read_cells(Path(sys.argv[1]), SIDE)
training, more, repairing, _ = parts(defects, types, agreement=0.9, samples=560, seed=0)
cells = torch.from_numpy(images).permute(0, 3, 1, 2) / 127.5 - 1
labels = torch.from_numpy(defects)

torch.manual_seed(0)
random = np.random.default_rng(0)
model = SmallResNet(len(CLASSES))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=20 * 9)
for _ in range(20):
    for part in np.array_split(random.permutation(training), 9):
        optimizer.zero_grad()
        cross_entropy(model(cells[part]), labels[part]).backward()
        optimizer.step()
        scheduler.step()

audited = np.concatenate([training, more])
audit = agop.audit(model.eval(), cells[audited], labels[audited], groups=types[audited].tolist(), class_names=CLASSES)
print(audit.summary())
audit.save(sys.argv[2])
if audit.sentences:
    groups = types[repairing].tolist()
    print(*Repair.of(model, audit, cells[repairing], labels[repairing], groups=groups).lines, sep="\n")
