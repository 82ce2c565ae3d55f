"""ResNet-50 and ViT-B/16 at 224 px: every method, fit and evaluate stay within 4 GiB with default options."""

import subprocess
import sys
import textwrap

import pytest

import agop

pytestmark = pytest.mark.nightly
MODELS = ("resnet-50", "vit-b-16")
LIMIT_MIB = 4 * 1024

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
        # A loader's batch may be larger than what goes through the model at once.
        prior = agop.fit(model, [torch.randn(64, *shape)], only_correct=False, progress=False)
        correct = prior.count == 64 and bool(prior.diagonal.isfinite().all())
    elif job == "evaluate":
        masks = torch.zeros(8, 224, 224, dtype=torch.bool)
        masks[:, 50:150, 50:150] = True
        options = {"methods": ["vanilla", "agop-weighted"], "steps": 8}
        table = agop.evaluate(model, torch.randn(8, *shape), masks, prior=prior, **options)
        correct = all(bool(s.isfinite().all()) for scores in table.scores.values() for s in scores.values())
    else:
        # Methods with many passes fill a batch with one image; the others need several images.
        many = ("integrated-gradients", "smoothgrad", "expected-gradients", "agop-expected", "agop")
        images, references = torch.randn(1 if job in many else 8, *shape), torch.randn(4, *shape)
        if agop.methods.get(job).prior_parts or job == "agop":
            prior = agop.fit(model, [images[:2]], only_correct=False, progress=False, rank=64)
        prior = prior if agop.methods.get(job).needs_prior else None
        maps = agop.explain(model, images, job, prior, references=references)
        correct = maps.shape == (len(images), 224, 224) and bool(maps.isfinite().all()) and bool(maps.any())
    # Not ru_maxrss: a child process inherits its parent's value.
    peak = next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(correct, peak)
"""


@pytest.mark.parametrize("job", ["fit", "evaluate", *agop.methods.names()])
@pytest.mark.parametrize("model", MODELS)
def test_peak_memory_stays_below_the_limit(model, job):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CODE), model, job]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert process.returncode == 0, process.stderr
    correct, peak = process.stdout.split()[-2:]
    print(f"{model} {job}: {peak} MiB")
    assert correct == "True"
    assert int(peak) < LIMIT_MIB
