"""Stand-ins for torchvision's compiled operators, to be imported before it where its build does not fit torch.

No model here calls them; only their names are asked for when torchvision is imported.
"""

import torch

for _name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
