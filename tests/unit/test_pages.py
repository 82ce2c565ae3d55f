"""Every code block of the README and of the documentation runs as printed; links and options exist.

The blocks of a page run in order, in one session:

- python: executed. With title="NAME.py" it is also written to that file. A block that includes an example with --8<--
  is covered by the tests of the examples.
- bash: executed.
- text: the output of the block before.
- sh: not executed, because it takes long or needs the reader's files. Commands and options must exist.
"""

import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from tests.command import run_checked

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NUMBER = r"\d+\.\d+|\d[\d,]*"


@dataclass(frozen=True)
class Block:
    language: str
    options: str
    text: str

    @property
    def title(self):
        match = re.search(r'title="(.+?)"', self.options)
        return match and match[1]

    @property
    def includes_an_example(self):
        return self.text.startswith("--8<--")


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(*parts) for parts in found]


def execute(page: Path) -> None:
    """Run all blocks in the current folder. Raises if one fails, or if its output differs from the text after it."""
    session, output = {"__name__": page.stem}, ""
    for block in blocks(page):
        if block.language == "python" and not block.includes_an_example:
            if block.title:
                Path(block.title).write_text(block.text)
            with redirect_stdout(StringIO()) as file:
                exec(compile(block.text, block.title or "block", "exec"), session)
            output = file.getvalue()
        elif block.language == "bash":
            done = subprocess.run(["bash", "-euc", block.text], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{block.text}\n{done.stdout}\n{done.stderr}")
            output = done.stdout
        elif block.language == "text":
            check_output(output, block.text)


def check_output(output: str, expected: str) -> None:
    """Equal up to line breaks, with numbers within 15 % or 0.05 of each other."""
    words, expected_words = (" ".join(re.sub(NUMBER, "#", text).split()) for text in (output, expected))
    numbers = [[float(number.replace(",", "")) for number in re.findall(NUMBER, text)] for text in (output, expected)]
    far = [pair for pair in zip(*numbers, strict=False) if abs(pair[0] - pair[1]) > max(0.05, 0.15 * abs(pair[1]))]
    if words != expected_words or far:
        raise SystemExit(f"the page says\n{expected}\nbut the code prints\n{output}\n{far}")


WITH_CODE = [page for page in PAGES if any(block.language in ("python", "bash") for block in blocks(page))]


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
        [sys.executable, "-m", "tests.unit.test_pages", page],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": path, "PATH": bin, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_languages_included_examples_and_links(page):
    for block in blocks(page):
        assert block.language in {"python", "bash", "text", "sh"}
        if block.includes_an_example:
            assert re.fullmatch(r"--8<--\nexamples/with_\w+\.py\n--8<--\n", block.text)
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_exist(page, tmp_path):
    for block in blocks(page):
        lines = block.text.replace("\\\n", " ").splitlines() if block.language in ("sh", "bash") else []
        for line in lines:
            if match := re.match(r"(?:torchrun .* -m )?agop (\w+)(?: ([a-z][a-z0-9-]+)(?= |$))?", line.strip()):
                words = [match[1], *([match[2]] if match[1] in ("bench", "data") and match[2] else [])]
                shown = run_checked(*words, "--help", folder=tmp_path, COLUMNS="300").stdout
                options = re.findall(r"(?<= )--[a-z-]+", line[match.end() :].split("#")[0])
                assert [option for option in options if option not in shown] == [], line


def test_readme_is_a_screen_and_a_half():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


if __name__ == "__main__":
    execute(Path(sys.argv[1]))
