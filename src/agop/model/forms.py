"""How to name a model."""

from __future__ import annotations

FORMS = {
    "package.module:function": "the function's return value; the current folder is searched first",
    "torchvision:NAME": "a torchvision model, for example torchvision:resnet18",
    "timm:NAME": "a timm model",
    "hf:NAME_OR_FOLDER": "a Hugging Face image classifier",
    "FILE.pt2": "a model saved with torch.export.save",
}
