"""about.json of a run: command, versions, hardware, and what its names mean. A report reads nothing else."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from agop.runs.records import read_record, write_record
from agop.system.processes import available_cores
from agop.system.versions import package_version

_PACKAGES = ("agop", "torch", "numpy")
_NAME = "about.json"


@dataclass(frozen=True)
class MetricFacts:
    """Label of a metric, its direction, its bounds if it has any, and its description."""

    label: str
    higher_is_better: bool
    bounds: tuple[float, float] | None = None
    what: str = ""


@dataclass(frozen=True)
class Hardware:
    """The machine; empty where the system doesn't report it."""

    processor: str = ""
    machine: str = ""
    cores: int | None = None
    memory: str = ""
    system: str = ""


@dataclass(frozen=True)
class About:
    """Facts of a run. `classes` and `samples` are names by scenario, `methods` descriptions by method."""

    metrics: dict[str, MetricFacts]
    command: str = ""
    network: str | None = None
    notes: tuple[str, ...] = ()
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    samples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    hardware: Hardware = Hardware()

    @classmethod
    def load(cls, folder: Path) -> About:
        """Read about.json of a run folder. Raises FileError."""
        return read_record(folder / _NAME, cls, "run again into another folder")


def command_line() -> str:
    """The running command, as a user would type it."""
    return shlex.join(["agop", *sys.argv[1:]])


def save_about(folder: Path, **facts: Any) -> None:
    """Write about.json with the facts of this run: command, metrics, classes, network, notes."""
    about = facts | {
        "versions": versions(),
        "hardware": {
            "processor": _processor(),
            "machine": platform.machine(),
            "cores": available_cores(),
            "memory": _memory(),
            "system": platform.system(),
        },
    }
    write_record(folder / _NAME, about)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that determine results."""
    return {"python": platform.python_version()} | {name: package_version(name) for name in _PACKAGES}


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
