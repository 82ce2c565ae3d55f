"""ResNet-50 and ViT-B/16 at 224 px: every method, fit and evaluate, by default calls within 4 GiB."""

import subprocess
import sys
import textwrap

import pytest

import agop

pytestmark = pytest.mark.nightly
MODELS = ("resnet-50", "vit-b-16")
BAR = 4 * 1024

CODE = """
    import sys, warnings
    import torch, agop
    from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification
    name, job = sys.argv[1:]
    torch.manual_seed(0)
    if name == "resnet-50":
        model = ResNetForImageClassification(ResNetConfig(num_labels=10))
    else:
        model = ViTForImageClassification(ViTConfig(num_labels=10))
    shape = (3, 224, 224)
    prior = agop.AGOP(torch.rand(shape, dtype=torch.float64), 1)
    if job == "fit":
        # What a user's loader gives: more than goes through the model at once.
        prior = agop.fit(model, [torch.randn(64, *shape)], only_correct=False, progress=False)
        right = prior.count == 64 and bool(prior.diagonal.isfinite().all())
    elif job == "evaluate":
        masks = torch.zeros(8, 224, 224, dtype=torch.bool)
        masks[:, 50:150, 50:150] = True
        chosen = {"methods": ["vanilla", "agop-weighted"], "steps": 8}
        table = agop.evaluate(model, torch.randn(8, *shape), masks, prior=prior, **chosen)
        right = all(bool(scores.isfinite().all()) for of in table.scores.values() for scores in of.values())
    else:
        # Methods of many passes fill them with one image; the others need as many as fit into one.
        images = torch.randn(1 if job in ("integrated-gradients", "smoothgrad") else 8, *shape)
        maps = agop.explain(model, images, job, prior if agop.methods.get(job).needs_prior else None)
        right = maps.shape == (len(images), 224, 224) and bool(maps.isfinite().all()) and bool(maps.any())
    # Not ru_maxrss, which a child inherits from its parent.
    peak = next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(right, peak)
"""


@pytest.mark.parametrize("job", ["fit", "evaluate", *agop.methods.names()])
@pytest.mark.parametrize("model", MODELS)
def test_peak_memory(model, job):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CODE), model, job]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    right, peak = done.stdout.split()[-2:]
    print(f"{model} {job}: {peak} MiB")
    assert right == "True"
    assert int(peak) < BAR
