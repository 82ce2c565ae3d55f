"""The command line: in this process, which is fast, or in a process of its own."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from agop.cli.main import main

WIDE = {"COLUMNS": "200"}


def run(*arguments, folder, **environment):
    """Run `agop` with these arguments in this process and that folder. Returns a CompletedProcess."""
    command = ["agop", *map(str, arguments)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), _modules_of(Path(folder)):
        patch.chdir(folder)
        patch.setattr(sys, "argv", command)
        patch.setattr(sys, "path", list(sys.path))
        for name, value in (WIDE | environment).items():
            patch.setenv(name, value)
        warnings.simplefilter("default")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                code = ended.code or 0
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def run_process(*arguments, folder, before=("-m", "agop"), **environment):
    """Run `agop` with these arguments in a process of its own, in that folder, on a wide terminal."""
    return subprocess.run(
        [sys.executable, *before, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | WIDE | environment,
    )  # fmt: skip


@contextlib.contextmanager
def _modules_of(folder: Path):
    """Forget the user's modules in the folder afterwards: another test's may have the same names."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == folder:
                del sys.modules[name]
