"""Hostile names in reports, and disks that are full.

AGOP_HOSTILE_NAMES sets how many names are tried. Each test prints what it tried and what held.
"""

import csv
import io
import os
import random

import numpy as np
import pytest
import torch
from PIL import Image

from agop import AGOP
from agop.networks import CNN8by8
from agop.report.formats import registry
from tests.command import run_process
from tests.report_runs import write_evaluation

pytestmark = pytest.mark.hostile
NAMES = int(os.environ.get("AGOP_HOSTILE_NAMES", "300"))
TAGS = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>")
PARTS = (
    *TAGS, "</style>", "{{7*7}}", "=cmd|'/c calc'!A1", "@SUM(1)", "[x](javascript:alert(1))", "\\input{/etc/passwd}",
    "$\\write18{id}$", "%", "#", "&", "|", "`", "\"'", "\u202e", "é",
)  # fmt: skip
LIMITS = (0, 100, 1000, 4096, 20_000)


def leaks(text, form):
    """True if a report shows a name in a way that a browser, a spreadsheet or LaTeX would execute."""
    if form == "html":
        return any(tag in text for tag in TAGS)
    if form == "csv":
        return any(cell[:1] in ("=", "@") for row in csv.reader(io.StringIO(text)) for cell in row)
    return form == "latex" and any(command in text for command in ("\\input{/etc", "\\write18{id}"))


def test_hostile_names_stay_text(tmp_path):
    draw, failures = random.Random(0), []
    for number in range(NAMES):
        name = "".join(draw.choices(PARTS, k=3))
        run = write_evaluation(tmp_path / str(number), {"vanilla": np.array([0.2, 0.4]), name: np.ones(2)})
        failures += [(name, form) for form in registry.names() if leaks(registry.get(form)(run), form)]
    print(f"\nhostile names in reports of {len(registry.names())} formats: {NAMES} tried, {NAMES - len(failures)} held")
    assert not failures


def test_full_disks_leave_no_partial_file_and_no_traceback(tmp_path):
    torch.manual_seed(0)
    torch.save(CNN8by8().state_dict(), tmp_path / "w.pth")
    for index in range(4):
        folder = tmp_path / "images" / "ab"[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(index).integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{index}.png")
    options = ("--weights", "w.pth", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")
    commands = {
        "fit": ("fit", "agop.networks:CNN8by8", "images", *options, "--all-samples", "--out", "prior.safetensors"),
        "explain": ("explain", "agop.networks:CNN8by8", "images", *options, "--out", "out"),
    }
    held = 0
    for limit in LIMITS:
        for command in commands.values():
            held += _held(command, limit, tmp_path)
    tried = len(LIMITS) * len(commands)
    print(f"\nfull disks: {tried} tried, {held} held")
    assert held == tried


def _held(command, limit, folder):
    """True if a command with a limit on the size of files ends with an error or a result, not with half a file."""
    limited = (
        f"import resource, runpy, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); runpy.run_module('agop', run_name='__main__')"
    )
    done = run_process(*command, before=("-c", limited), folder=folder)
    prior = folder / "prior.safetensors"
    if prior.exists():
        AGOP.load(prior)
        prior.unlink()
    ended_well = done.returncode in (0, 2) and "Traceback" not in done.stderr
    if not ended_well:
        print(f"\n{command[0]} with files of at most {limit} bytes: {done.returncode}\n{done.stderr[-3000:]}")
    return ended_well
