"""The command line in a process of its own."""

import os
import subprocess
import sys


def run(*arguments, folder, before=("-m", "agop"), **environment):
    """`agop` with these arguments, in that folder, on a wide terminal."""
    return subprocess.run(
        [sys.executable, *before, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"COLUMNS": "200"} | environment,
    )  # fmt: skip
