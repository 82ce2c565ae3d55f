"""What stands behind a run: command, versions, hardware, and what its names mean. A report has nothing else."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agop.files import write_whole

_PACKAGES = ("agop", "torch", "numpy")


def command_line() -> str:
    """The command that is at work, as it would be typed."""
    return shlex.join(["agop", *sys.argv[1:]])


def save_about(folder: Path, **told: Any) -> None:
    """Write it into the run folder, with what this run tells of itself: command, metrics, classes, network, notes."""
    about = told | {
        "versions": {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES},
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "system": platform.system()},
    }
    write_whole(folder / "about.json", json.dumps(about, indent=1).encode())
