"""The wheel, built from the sdist, works in an empty environment; its metadata is complete."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXPLAIN = """
import torch, agop
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
print(agop.explain(model, torch.rand(3, 1, 8, 8), "vanilla").shape)
"""


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project():
    """The [project] table of pyproject.toml."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 can't read TOML")
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The sdist, and the wheel that `python -m build` makes from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.mark.slow
def test_wheel_has_types_templates_and_the_example_but_no_tests(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tracked = run("git", "ls-files", "src", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    assert {name.removeprefix("src/") for name in tracked} <= set(names)
    assert "agop/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "docs"))]


@pytest.mark.slow
def test_sdist_has_what_the_tests_read(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/conftest.py", "README.md", "CITATION.cff", "Makefile", "constraints.txt", "mkdocs.yml"} <= names
    assert not [name for name in names if name.startswith((".venv", "runs", "site"))]


@pytest.mark.slow
def test_wheel_runs_in_an_empty_environment(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    bin = tmp_path / "empty" / "bin"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(sys.executable, "-m", "venv", bin.parent)
    install = (bin / "python", "-m", "pip", "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", wheel)
    run(*install, env=environment)
    assert "explain" in run(bin / "agop", "--help", cwd=tmp_path, env=environment)
    assert "agop-weighted" in run(bin / "agop", "list", cwd=tmp_path, env=environment)
    assert run(bin / "python", "-c", EXPLAIN, cwd=tmp_path, env=environment) == "torch.Size([3, 8, 8])\n"


def test_citation_file_agrees_with_the_project(project):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["title"] == project["name"]
    assert citation["license"] == project["license"]
    assert citation["abstract"] == project["description"]
    assert "version" not in citation


def test_every_library_of_an_extra_is_pinned(project):
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split("\n")
    }
    wanted = {name for extra in project["optional-dependencies"].values() for name in extra} | set(
        project["dependencies"]
    )
    names = {name.split(">")[0].split("[")[0].lower() for name in wanted} - {"agop"}
    assert names <= pinned


def test_an_install_that_failed_is_repeated_in_an_empty_environment(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    half_installed = tmp_path / ".venv/bin/half-installed"
    half_installed.parent.mkdir(parents=True)
    half_installed.touch()
    command = ["make", ".venv/package", "PYTHON=false"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the last install didn't finish" in second.stdout
    assert not half_installed.exists()
