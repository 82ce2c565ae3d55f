"""Peak memory of real processes: it grows neither with the images nor with the steps."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

CODE = """
    import sys, torch, agop
    torch.set_num_threads(1)
    count, steps, batch_size = map(int, sys.argv[1:])
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.Softplus(),
        torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.Softplus(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 3),
    )
    images = torch.randn(1, 3, 48, 48).expand(count, -1, -1, -1)
    agop.explain(model, images, agop.methods.IntegratedGradients(steps=steps), batch_size=batch_size)
    # Not ru_maxrss, which a child inherits from its parent.
    print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak(count: int, steps: int, batch_size: int) -> int:
    """Peak resident memory in MiB of explaining that many images with that many steps."""
    arguments = [sys.executable, "-c", textwrap.dedent(CODE), str(count), str(steps), str(batch_size)]
    return int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def test_memory_follows_the_batch_size_alone():
    little = peak(8, 4, 8)
    assert peak(8, 32, 8) < little + 20
    assert peak(64, 4, 8) < little + 20
    assert peak(64, 4, 64) > little + 60  # the measurement can tell
