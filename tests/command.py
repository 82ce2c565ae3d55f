"""Run `agop` for a test: in this process, which is fast, or in a process of its own; wait for a condition."""

import contextlib
import io
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from agop.cli.main import main

WIDE = {"COLUMNS": "200"}


def run(*arguments, folder, **environment):
    """Run `agop` in this process, with `folder` as the working directory. Returns a CompletedProcess."""
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
            except SystemExit as error:
                code = error.code or 0
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def run_checked(*arguments, folder, **environment):
    """Run `agop` as `run` does. Fails unless the command succeeds."""
    result = run(*arguments, folder=folder, **environment)
    assert result.returncode == 0, result.stderr
    return result


def error_of(*arguments, folder, **environment):
    """Standard error of a command that must end with exit code 2, and without a traceback."""
    result = run(*arguments, folder=folder, **environment)
    assert result.returncode == 2, result.stderr
    assert result.stderr.splitlines()[-1].startswith("error:")
    assert "Traceback" not in result.stderr
    return result.stderr


def run_process(*arguments, folder, before=("-m", "agop"), **environment):
    """Run `agop` in a new process, with `folder` as the working directory. Returns a CompletedProcess."""
    return subprocess.run(
        [sys.executable, *before, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | WIDE | environment,
    )  # fmt: skip


@contextlib.contextmanager
def _modules_of(folder: Path):
    """Forget modules imported from the folder afterwards: another test may use the same names."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == folder:
                del sys.modules[name]


def wait_until(condition, seconds=600):
    """Poll until the condition holds and return its value. Fails after the given number of seconds."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"still waiting after {seconds} seconds"
        time.sleep(0.02)
    return result
