"""What IPython displays, in a subprocess."""

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
displays = []
for cell in cells:
    shell.run_cell("%%capture captured\\n" + cell).raise_error()
    (data,) = [output.data for output in shell.user_ns["captured"].outputs]
    size = Image.open(io.BytesIO(data["image/png"])).size if "image/png" in data else None
    displays.append([data["text/plain"], size])
print(json.dumps(displays))
"""


def displayed(folder: Path, setup: str, *cells: str) -> list[tuple[str, list[int] | None]]:
    """Text and image size (or None) that IPython displays for the last expression of each cell."""
    process = [sys.executable, "-c", IN_A_NOTEBOOK, json.dumps([setup, *cells])]
    environment = os.environ | {"IPYTHONDIR": str(folder)}
    done = subprocess.run(process, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
