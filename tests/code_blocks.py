"""Code blocks of a Markdown page, executed in order, in one session.

- python: executed. With title="NAME.py" it is also written to that file. A block that includes an example with --8<--
  is covered by the tests of the examples.
- bash: executed.
- text: the output of the block before.
- sh: not executed, because it takes long or needs the reader's files. Commands and options must exist.
"""

import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

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
            output = run_python(block, session)
        elif block.language == "bash":
            output = run_bash(block)
        elif block.language == "text":
            check_output(output, block.text)


def run_python(block: Block, session: dict) -> str:
    if block.title:
        Path(block.title).write_text(block.text)
    with redirect_stdout(StringIO()) as file:
        exec(compile(block.text, block.title or "block", "exec"), session)
    return file.getvalue()


def run_bash(block: Block) -> str:
    done = subprocess.run(["bash", "-euc", block.text], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{block.text}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def check_output(output: str, expected: str) -> None:
    """Equal up to line breaks, with numbers within 15 % or 0.05 of each other."""
    words, expected_words = (" ".join(re.sub(NUMBER, "#", text).split()) for text in (output, expected))
    pairs = list(zip(numbers(output), numbers(expected), strict=False))
    far = [pair for pair in pairs if abs(pair[0] - pair[1]) > max(0.05, 0.15 * abs(pair[1]))]
    if words != expected_words or far:
        raise SystemExit(f"the page says\n{expected}\nbut the code prints\n{output}\n{far}")


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(NUMBER, text)]


if __name__ == "__main__":
    execute(Path(sys.argv[1]))
