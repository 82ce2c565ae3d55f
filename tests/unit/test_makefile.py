"""What the targets of the Makefile install into an empty clone."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def installs(clone, target):
    """The pip arguments that make would run for the target, in order."""
    done = subprocess.run(["make", "--dry-run", target], cwd=clone, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if " -m pip install " in line]
    return [line.split("-c constraints.txt ")[1] for line in lines]


def test_the_demo_installs_the_package_without_extras(clone):
    assert installs(clone, "demo") == ["-e ."]


def test_the_tests_install_the_development_extras_at_once(clone):
    assert installs(clone, "test")[0] == "-e '.[dev]'"


def test_an_environment_of_the_tests_serves_the_demo(clone):
    for name in (".venv/package", ".venv/dev"):
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).touch()
    assert installs(clone, "demo") == installs(clone, "test") == []


def test_an_install_that_failed_is_repeated_in_an_empty_environment(clone):
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/half-installed").touch()
    (clone / "python").write_text("#!/bin/sh\nexit 1\n")
    (clone / "python").chmod(0o755)
    command = ["make", ".venv/package", f"PYTHON={clone}/python"]
    assert subprocess.run(command, cwd=clone, capture_output=True, check=False).returncode
    assert (clone / ".venv/bin/half-installed").exists()
    second = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert "the last install didn't finish" in second.stdout
    assert not (clone / ".venv/bin").exists()
