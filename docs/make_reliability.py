"""Run the hostile tests and print docs/reliability.md: what was tried, how often, and how often it held."""

from __future__ import annotations

import re
import subprocess
import sys

_LINE = re.compile(
    r"^(?P<what>.+): (?P<tried>[\d,]+) tried, (?P<held>[\d,]+) held(?: \((?P<more>.*)\))?$", re.MULTILINE
)
_HEAD = """# Reliability

What was tried to get a wrong answer, a destroyed file or a raw traceback, how often, and how often agop held. Made by
`make hostile`. Damage is random with a fixed seed; `AGOP_HOSTILE_…` variables at the top of each file in
`tests/hostile` set how often each attack is tried.

| attack | tried | held | outcomes |
|---|---|---|---|"""


def _plain(outcomes: str | None) -> str:
    """Counts of outcomes as text, also from a printed dict."""
    return re.sub("[{}']", "", outcomes or "")


def main() -> None:
    """The page on standard output, the tests' own output on standard error; fails if a test fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "hostile", "tests/hostile"]
    tests = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(tests.stdout)
    rows = [
        f"| {line['what'].lstrip('.F')} | {line['tried']} | {line['held']} | {_plain(line['more'])} |"
        for line in _LINE.finditer(tests.stdout)
    ]
    sys.stdout.write("\n".join([_HEAD, *rows]) + "\n")
    sys.exit(tests.returncode)


if __name__ == "__main__":
    main()
