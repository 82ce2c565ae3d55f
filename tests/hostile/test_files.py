"""Damaged and hostile files: flipped bits, mutated files in commands, evil images, names in reports, full disks.

AGOP_HOSTILE_FLIPS, _CALLS, _IMAGES and _NAMES set how often each is tried. A test prints what it tried and what held.
"""

import csv
import io
import os
import random
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from agop.bench import CNN8by8
from agop.errors import FileError
from tests.agop_files import flipped
from tests.command import run_checked, run_process
from tests.image_files import save_random
from tests.mutated_calls import mutated_bytes, prepare, try_all
from tests.report_runs import write_evaluation
from tests.state import same

pytestmark = [
    pytest.mark.hostile, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
]  # fmt: skip
FLIPS = int(os.environ.get("AGOP_HOSTILE_FLIPS", "3000"))
CALLS = int(os.environ.get("AGOP_HOSTILE_CALLS", "2400"))
IMAGES = int(os.environ.get("AGOP_HOSTILE_IMAGES", "5000"))
NAMES = int(os.environ.get("AGOP_HOSTILE_NAMES", "300"))
KINDS = ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]
MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "I"]
FOREIGN = [
    b"", b"\0", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9999 9999\nshowpage\n", b"<svg/>", b"\x89PNG\r\n\x1a\n",
    b"GIF89a" + b"\xff" * 50, b"BM" + b"\xff" * 60, b"P6\n1000000 1000000\n255\n", b"II*\0" + b"\xff" * 40,
]  # fmt: skip
TAGS = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>")
PARTS = (
    *TAGS, "</style>", "{{7*7}}", "=cmd|'/c calc'!A1", "@SUM(1)", "[x](javascript:alert(1))", "\\input{/etc/passwd}",
    "$\\write18{id}$", "%", "#", "&", "|", "`", "\"'", "\u202e", "é",
)  # fmt: skip
LIMITS = (0, 100, 1000, 4096, 20_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    prepare(folder)
    return folder


def are_equal(a, b):
    names = ("diagonal", "count", "class_diagonals", "class_counts", "provenance")
    return all(same(getattr(a, name), getattr(b, name)) for name in names)


def test_flipped_bits(folder, tmp_path):
    """A file with a flipped bit is rejected, or the bit doesn't matter and its content is the same."""
    content, expected = (folder / "prior.safetensors").read_bytes(), agop.AGOP.load(folder / "prior.safetensors")
    draw, outcomes = random.Random(FLIPS), Counter()
    for _ in range(FLIPS):
        (tmp_path / "flipped").write_bytes(flipped(content, draw.randrange(8 * len(content))))
        try:
            outcomes["equal" if are_equal(agop.AGOP.load(tmp_path / "flipped"), expected) else "wrong"] += 1
        except FileError:
            outcomes["rejected"] += 1
    print(f"\nflipped bits in AGOP files: {FLIPS} tried, {FLIPS - outcomes['wrong']} held ({dict(outcomes)})")
    assert not outcomes["wrong"]


def test_commands_with_mutated_files(folder):
    outcomes, leaks = try_all(folder, CALLS, seed=CALLS)
    print(f"\ncommands and app with mutated files: {CALLS} tried, {CALLS - len(leaks)} held ({dict(outcomes)})")
    assert leaks == {}


def evil_image(draw):
    """A foreign file, or an image of some format, mode and shape, most of them with mutated bytes."""
    if draw.random() < 0.05:
        return draw.choice(FOREIGN)
    height, width = draw.choice([(1, 1), (16, 16), (3, 40), (1, 3000), (3000, 1)])
    pixels = np.random.default_rng(draw.randrange(10**6)).integers(0, 255, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    try:
        Image.fromarray(pixels).convert("RGB").convert(draw.choice(MODES)).save(buffer, draw.choice(KINDS))
    except (OSError, ValueError):  # a format that doesn't have this mode
        Image.fromarray(pixels).save(buffer, "PNG")
    content = buffer.getvalue()
    for _ in range(draw.choice([0, 1, 1, 2, 5])):
        content = mutated_bytes(content, draw)
    return content


def read_outcome(read, path, size):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "read" if read(path).size == size[::-1] else "wrong size"
    except FileError:
        return "rejected"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_evil_images(tmp_path):
    outcomes, leaks = Counter(), {}
    for number in range(IMAGES):
        draw = random.Random(number)
        resize = draw.choice([None, 20, (9, 30)])
        how = agop.Preprocessing((12, 16), gray=draw.random() < 0.5, resize=resize)
        path = tmp_path / f"evil.{draw.choice(['png', 'jpg', 'tif'])}"
        path.write_bytes(evil_image(draw))
        result = read_outcome(how.picture, path, how.size)
        outcomes[result if result in ("read", "rejected") else "leaked"] += 1
        if result not in ("read", "rejected"):
            leaks[number] = result
    print(f"\nevil images: {IMAGES} tried, {IMAGES - len(leaks)} held ({dict(outcomes)})")
    assert leaks == {}


def executes(text, form):
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
        write_evaluation(tmp_path / str(number), {"vanilla": np.array([0.2, 0.4]), name: np.ones(2)})
        for form in ("csv", "html", "latex"):
            run_checked("report", number, "--format", form, "--out", f"{number}.{form}", folder=tmp_path)
            if executes((tmp_path / f"{number}.{form}").read_text(), form):
                failures.append((name, form))
    print(f"\nhostile names in reports of three formats: {NAMES} tried, {NAMES - len(failures)} held")
    assert not failures


def test_full_disks_leave_no_partial_file_and_no_traceback(tmp_path):
    torch.manual_seed(0)
    torch.save(CNN8by8().state_dict(), tmp_path / "w.pth")
    save_random(tmp_path / "images", "a/0.png", "a/1.png", "b/0.png", "b/1.png")
    options = ("--weights", "w.pth", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")
    commands = {
        "fit": ("fit", "agop.bench:CNN8by8", "images", *options, "--all-samples", "--out", "prior.safetensors"),
        "explain": ("explain", "agop.bench:CNN8by8", "images", *options, "--out", "out"),
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
    limited = (  # without half a bytecode file, which would break the commands after it
        "import resource, runpy, signal, sys; sys.dont_write_bytecode = True; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); runpy.run_module('agop', run_name='__main__')"
    )
    done = run_process(*command, before=("-c", limited), folder=folder)
    prior = folder / "prior.safetensors"
    if prior.exists():
        agop.AGOP.load(prior)
        prior.unlink()
    ended_well = done.returncode in (0, 2) and "Traceback" not in done.stderr
    if not ended_well:
        print(f"\n{command[0]} with files of at most {limit} bytes: {done.returncode}\n{done.stderr[-3000:]}")
    return ended_well
