"""The README's lines run and print what it says they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    return [block for name, block in fenced if name == language]


@pytest.mark.slow
def test_the_runnable_lines_print_what_the_readme_says():
    code = next(block for block in blocks("python") if "AGOPTrainingHook" in block)
    printed = next(block for block in blocks("") if block.startswith("AGOP("))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    numbers = r"\d+\.\d+|\d[\d,]+"
    assert re.sub(numbers, "#", done.stdout) == re.sub(numbers, "#", printed)
    found, told = (
        [float(number.replace(",", "")) for number in re.findall(numbers, text)] for text in (done.stdout, printed)
    )
    assert found == pytest.approx(told, rel=0.15)


def test_every_file_the_readme_points_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_the_options_the_readme_names_are_there():
    from typer.testing import CliRunner

    from agop.cli.main import cli

    for command in ("fit", "explain"):
        told = CliRunner().invoke(cli, [command, "--help"], env={"COLUMNS": "300"}).output
        for line in "\n".join(blocks("")).replace("\\\n", " ").splitlines():
            if line.startswith(f"agop {command} "):
                assert all(option in told for option in re.findall(r"--[a-z-]+", line))
