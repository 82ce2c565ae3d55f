"""IPython in a process of its own, for what a notebook displays."""

import json
import os
import subprocess
import sys
from pathlib import Path

IN_A_NOTEBOOK = """
import io, json, sys
from IPython.core.interactiveshell import InteractiveShell
from PIL import Image
shell = InteractiveShell.instance()
setup, *cells = json.loads(sys.argv[1])
shell.run_cell(setup).raise_error()
found = []
for cell in cells:
    shell.run_cell("%%capture shown\\n" + cell).raise_error()
    (data,) = [output.data for output in shell.user_ns["shown"].outputs]
    size = Image.open(io.BytesIO(data["image/png"])).size if "image/png" in data else None
    found.append([data["text/plain"], size])
print(json.dumps(found))
"""


def displayed(folder: Path, setup: str, *cells: str) -> list[tuple[str, list[int] | None]]:
    """What IPython displays for the last expression of each cell: its text, and the size of its picture."""
    process = [sys.executable, "-c", IN_A_NOTEBOOK, json.dumps([setup, *cells])]
    environment = os.environ | {"IPYTHONDIR": str(folder)}
    done = subprocess.run(process, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
