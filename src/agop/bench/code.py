"""Digests of the user's own methods: a run isn't resumed after their code has changed."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

from agop import methods
from agop.system.files import read_bytes


def code_of(names: Iterable[str]) -> dict[str, str]:
    """Digests by package.module:NAME, each of two files: the named module, and the one that defines the class."""
    bases = {name: name.partition("@")[0] for name in names}
    return {
        name: _digest({base.partition(":")[0], methods.get(base).__module__})
        for name, base in bases.items()
        if methods.is_own(base)
    }


def _digest(modules: Iterable[str]) -> str:
    files = sorted({str(file) for name in modules if (file := getattr(sys.modules[name], "__file__", None))})
    return hashlib.sha256(b"".join(read_bytes(Path(file)) for file in files)).hexdigest()[:16]
