"""about.json of a run: command, versions, hardware, and what its names mean. A report reads nothing else."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

from agop.system.files import write_atomically
from agop.system.processes import available_cores
from agop.system.versions import package_version

_PACKAGES = ("agop", "torch", "numpy")


def command_line() -> str:
    """The running command, as a user would type it."""
    return shlex.join(["agop", *sys.argv[1:]])


def save_about(folder: Path, **facts: Any) -> None:
    """Write about.json with the facts of this run: command, metrics, classes, network, notes."""
    about = facts | {
        "versions": {"python": platform.python_version()} | {name: package_version(name) for name in _PACKAGES},
        "hardware": {
            "processor": _processor(),
            "machine": platform.machine(),
            "cores": available_cores(),
            "memory": _memory(),
            "system": platform.system(),
        },
    }
    write_atomically(folder / "about.json", json.dumps(about, indent=1).encode())


def _processor() -> str:
    """Name of the processor; empty if the system doesn't report it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _memory() -> str:
    """Size of the memory; empty if the system doesn't report it."""
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):
        return ""
