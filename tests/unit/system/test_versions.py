"""A checkout that is on the path without being installed."""

import subprocess
import sys
from pathlib import Path

import agop
from agop.system.versions import package_version


def test_version_of_this_package_and_of_a_missing_one():
    assert package_version() == agop.__version__ != "unknown"
    assert package_version("no-such-package-anywhere") == "unknown"


def test_a_vendored_checkout_fits_and_saves(tmp_path):
    code = (
        "import importlib.metadata as metadata, sys\n"
        "real = metadata.version\n"
        "def version(name):\n"
        "    if name == 'agop': raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n"
        "import agop, torch\n"
        "model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))\n"
        "prior = agop.fit(model, [torch.randn(4, 1, 8, 8)], only_correct=False, progress=False)\n"
        "prior.save('prior.safetensors'); print(agop.__version__, prior.provenance.versions['agop'])"
    )
    source = str(Path(agop.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": source, "PATH": ""},
    )  # fmt: skip
    assert done.stdout == "unknown unknown\n", done.stderr
