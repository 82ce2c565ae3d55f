"""The contract of devices on a GPU, if there is one, and on a device without hardware.

That one raises as a GPU does if tensors of two devices meet. It is registered with torch for the whole process, so each
device has a process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CONTRACT = Path(__file__).with_name("device_contract.py")
AVAILABLE = {"remote": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}


@pytest.mark.parametrize("device", [pytest.param("remote", marks=pytest.mark.slow), "cuda", "mps"])
def test_device_contract(device, tmp_path):
    if not AVAILABLE[device]:
        pytest.skip(f"there is no {device} device")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path, CONTRACT]
    done = subprocess.run(
        command, cwd=CONTRACT.parents[2], env=os.environ | {"AGOP_DEVICE": device}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
