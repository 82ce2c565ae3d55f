"""Checks that the models of every library share: timm, torchvision and transformers."""

import torch

import agop

# With few steps and samples: the maps need not be good.
FAST = {
    "integrated-gradients": "steps", "smoothgrad": "samples", "expected-gradients": "samples",
    "agop-expected": "samples", "agop": "samples",
}  # fmt: skip


def check_every_method(described, images):
    """Every method gives finite maps, at the model's size, without a layer."""
    prior = agop.fit(described.model, [images], only_correct=False, progress=False, rank=2)
    for method in agop.methods.runnable(prior, with_references=True):
        fast = f"{method}:{FAST[method]}=2" if method in FAST else method
        maps = agop.explain(described.model, images, fast, prior, references=images.flip(3))
        assert maps.shape == (len(images), *described.preprocessing.size)
        assert maps.isfinite().all()
        assert method in ("gradcam", "gradcam++", "layercam") or maps.max() > 0


def assert_same_input(ours, theirs):
    """Equal up to rounding: both scale with Pillow."""
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)
