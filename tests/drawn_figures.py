"""An image with its map and mask, what a figure shows, and what IPython displays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

import agop

NUMBERS = np.random.default_rng(0)
IMAGE = torch.from_numpy(NUMBERS.random((3, 6, 9)))
MAP = NUMBERS.random((6, 9))
MASK = NUMBERS.random((6, 9)) > 0.6


def texts(figure: Figure) -> set[str]:
    """All texts of a figure."""
    return {text.get_text() for text in figure.findobj(matplotlib.text.Text)}


def pixels(axes) -> np.ndarray:
    """The pixels (H,W,3) drawn into an axes."""
    return np.asarray(axes.images[0].get_array())


def colour_bar(figure: Figure):
    (bar,) = [axes for axes in figure.axes if hasattr(axes, "_colorbar")]
    return bar


def drawn(image) -> np.ndarray:
    """The picture (H,W,3) of an image, as agop.plot draws it."""
    blank = np.zeros(image.shape[-2:] if isinstance(image, torch.Tensor) else np.shape(image)[:2])
    return pixels(agop.plot.compare([image], {"blank": blank[None]}).axes[0])


def outline_length(axes) -> float:
    """Length of the outline in an axes, in pixels."""
    return sum(np.linalg.norm(end - start) for start, end in axes.collections[0].get_segments())


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
