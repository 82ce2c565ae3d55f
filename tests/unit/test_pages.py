"""Every code block of the README and of the documentation runs as printed; links and options exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agop.cli.main import cli
from tests.code_blocks import blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if any(block.language in ("python", "bash") for block in blocks(page))]
LANGUAGES = {"python", "bash", "text", "sh"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_every_block_runs_as_printed(page, tmp_path):
    for folder in ("docs", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    path = os.pathsep.join(filter(None, [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH")]))
    bin = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "tests.code_blocks", page], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": path, "PATH": bin, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_have_a_language_that_says_how_they_are_tested(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_included_files_are_examples_that_have_a_test(page):
    for block in blocks(page):
        if block.includes_an_example:
            assert re.fullmatch(r"--8<--\nexamples/with_\w+\.py\n--8<--\n", block.text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_linked_files_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_exist(page):
    for block in blocks(page):
        lines = block.text.replace("\\\n", " ").splitlines() if block.language in ("sh", "bash") else []
        for line in lines:
            if match := re.match(r"(?:torchrun .* -m )?agop (\w+)(?: ([a-z][a-z0-9-]+)(?= |$))?", line.strip()):
                words = [match[1], *([match[2]] if match[1] in ("bench", "data") and match[2] else [])]
                shown = CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": "300"})
                assert shown.exit_code == 0, line
                options = re.findall(r"(?<= )--[a-z-]+", line[match.end() :].split("#")[0])
                assert [option for option in options if option not in shown.output] == [], line


def test_readme_is_a_screen_and_a_half():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
