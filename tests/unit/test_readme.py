"""The README's example runs and prints what the README says; its links and options exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agop.cli.main import cli

README = Path(__file__).parents[2] / "README.md"
NUMBER = r"\d+\.\d+|\d[\d,]+"


def code_blocks(language: str) -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    return [text for name, text in blocks if name == language]


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(NUMBER, text)]


@pytest.mark.slow
def test_example_prints_the_output_in_the_readme():
    code = next(block for block in code_blocks("python") if "AGOPTrainingHook" in block)
    expected = next(block for block in code_blocks("") if block.startswith("AGOP("))
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert re.sub(NUMBER, "#", output) == re.sub(NUMBER, "#", expected)
    assert numbers(output) == pytest.approx(numbers(expected), rel=0.15)


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


@pytest.mark.parametrize("block", code_blocks("python"))
def test_python_blocks_compile(block):
    compile(block, "README.md", "exec")


@pytest.mark.parametrize("command", ["fit", "explain", "evaluate", "app", "report"])
def test_options_in_the_readme_exist(command):
    help_text = CliRunner().invoke(cli, [command, "--help"], env={"COLUMNS": "300"}).output
    lines = "\n".join(code_blocks("")).replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith(f"agop {command} "):
            assert all(option in help_text for option in re.findall(r"--[a-z-]+", line)), line
