"""Every code block of the README and of the documentation runs as printed; links and options exist.

The blocks of a page run in order, in one session:

- python: executed. With title="NAME.py" it is also written to that file. With title="examples/NAME.py" it is that file,
  which the tests of the examples run.
- bash: executed.
- text: the output of the block before. `python -m tests.unit.test_pages PAGE --update` writes it, in an empty folder.
- bibtex: not executed.
- sh: not executed, because it takes long or needs the reader's files. Commands and options must exist.
"""

import os
import re
import subprocess
import sys
import textwrap
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from docs.claims import claims_table

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
    def is_an_example(self):
        return bool(self.title) and self.title.startswith("examples/")


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(*parts) for parts in found]


def execute(page: Path, update: bool = False) -> None:
    """Run all blocks in the current folder. Raises if one fails, or if its output differs from the text after it.

    With `update`, such a text is replaced in the page.
    """
    session, output, text = {"__name__": page.stem}, "", page.read_text()
    for block in blocks(page):
        if block.language == "python" and not block.is_an_example:
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
        elif block.language == "text" and (problem := difference(output, block.text)):
            if not update:
                raise SystemExit(problem)
            wrapped = "\n".join(textwrap.fill(line, 120) if len(line) > 120 else line for line in output.splitlines())
            text = text.replace(f"```text\n{block.text}```", f"```text\n{wrapped.strip()}\n```")
    if update:
        page.write_text(text)


def difference(output: str, expected: str) -> str:
    """What differs, "" if they are equal up to line breaks, with numbers within 15 % or 0.05 of each other.

    A last column of milliseconds isn't compared.
    """
    if re.search(" ms$", expected, re.MULTILINE):
        output, expected = (re.sub(r" [\d.]+$", "", text, flags=re.MULTILINE) for text in (output, expected))
    words, expected_words = (" ".join(re.sub(NUMBER, "#", text).split()) for text in (output, expected))
    numbers = [[float(number.replace(",", "")) for number in re.findall(NUMBER, text)] for text in (output, expected)]
    far = [pair for pair in zip(*numbers, strict=False) if abs(pair[0] - pair[1]) > max(0.05, 0.15 * abs(pair[1]))]
    equal = words == expected_words and not far
    return "" if equal else f"the page says\n{expected}\nbut the code prints\n{output}\n{far}"


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
def test_languages_examples_and_links(page):
    """And a page reads the same without the site: it shows all code and all output."""
    for block in blocks(page):
        assert block.language in {"python", "bash", "text", "sh", "bibtex"}
        assert re.fullmatch(r'( title="[^"]+")?', block.options)
        assert "--8<--" not in block.text
        if block.is_an_example:
            assert block.text == (ROOT / block.title).read_text()
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


def test_the_table_of_claims_is_that_of_the_results():
    assert claims_table("xai-tris", "clevr-xai") in (ROOT / "docs/reproduce.md").read_text()


def test_readme_is_a_screen_and_a_half_and_no_page_is_longer_than_250_lines():
    lengths = {name(page): len(page.read_text().splitlines()) for page in PAGES}
    assert lengths["README.md"] <= 130
    assert max(lengths.values()) <= 250


def test_llms_txt_names_pages_of_the_site():
    pages = re.findall(r"\((\S+)\.html\)", (ROOT / "docs/llms.txt").read_text())
    assert len(pages) > 5
    assert all((ROOT / "docs" / f"{page}.md").exists() for page in pages)


if __name__ == "__main__":
    execute(Path(sys.argv[1]), "--update" in sys.argv)
