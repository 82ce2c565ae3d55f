"""Command-line and app calls with mutated files: each must succeed or raise an AGOPError."""

import io
import random
import shutil
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

import agop
from agop.app import example
from agop.cli.explain import load_session
from tests.command import run
from tests.image_files import save, save_random

NETWORK = "agop.bench:CNN8by8"
HOW = ("--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")
PICTURES = {"png": {}, "jpeg": {}, "gif": {}, "bmp": {}, "tiff": {"compression": "tiff_lzw"}, "webp": {}, "ppm": {}}


def mutated_bytes(content: bytes, draw: random.Random) -> bytes:
    """The content with some bytes changed, removed, added, repeated or zeroed."""
    place, length = draw.randrange(len(content) + 1), draw.choice([1, 1, 2, 8, 64])
    head, middle, tail = content[:place], content[place : place + length], content[place + length :]
    return draw.choice(
        [
            lambda: head + bytes(byte ^ (1 << draw.randrange(8)) for byte in middle) + tail,
            lambda: head + draw.randbytes(length) + tail,
            lambda: head + bytes(length) + tail,
            lambda: head + tail,
            lambda: head + middle + middle + tail,
            lambda: head + draw.randbytes(length) + middle + tail,
            lambda: head,
        ]
    )()


def mutated_zip(content: bytes, draw: random.Random) -> bytes:
    """A zip archive with one changed, renamed or removed part, and correct checksums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice(list(parts))
    part = parts.pop(name)
    if draw.random() < 0.9:
        parts[name if draw.random() < 0.9 else f"{name}x"] = mutated_bytes(part, draw)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for each, data in parts.items():
            archive.writestr(each, data)
    return buffer.getvalue()


@dataclass(frozen=True)
class Call:
    """A call with one mutated file, and what is called with the file's path: command-line arguments, or the app's."""

    name: str
    file: str
    arguments: Callable[[Path], tuple | dict | Path]

    def mutated(self, folder: Path, draw: random.Random) -> bytes:
        content = (folder / self.file).read_bytes()
        is_zip = self.file.endswith((".pt", ".pt2"))
        return (mutated_zip if is_zip and draw.random() < 0.7 else mutated_bytes)(content, draw)


def prepare(folder: Path) -> None:
    """Write valid files of all kinds: images, weights, AGOP files, an exported program and class names."""
    save_random(folder / "data" / "a", "0.png", "1.png")
    save_random(folder / "data" / "b", "0.png")
    for path in (folder / "data").rglob("*.png"):
        save(folder / "masks" / path.relative_to(folder / "data"), 255 * np.eye(8))
    shutil.copy(example.WEIGHTS, folder / "w.safetensors")
    torch.save(load_file(example.WEIGHTS), folder / "w.pt")
    model, images = example.network(), torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for name, part in (("prior", images[:5]), ("other", images[5:])):
        prior = agop.fit(model, [part], only_correct=False, per_class=True, progress=False)
        how = agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
        prior.save(folder / f"{name}.safetensors", preprocessing=how, classes=["a", "b"])
    batch = torch.export.Dim("batch")
    program = torch.export.export(model.eval(), (images[:2],), dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, folder / "model.pt2")
    (folder / "names.txt").write_text("T\nL\n")
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    for kind, options in PICTURES.items():
        Image.fromarray(pixels).save(folder / f"picture.{kind}", **options)


def _explain(*arguments):
    return ("explain", NETWORK, *arguments, *HOW, "--method", "vanilla")


CALLS = [
    Call("explain --prior", "prior.safetensors", lambda path: (
        "explain", NETWORK, "data", "--weights", "w.safetensors", "--prior", path, "--method", "agop-weighted")),
    Call("evaluate --prior", "prior.safetensors", lambda path: (
        "evaluate", NETWORK, "data", "masks", "--weights", "w.safetensors", "--prior", path, "--method", "agop-global",
        "--metric", "energy")),
    Call("show", "prior.safetensors", lambda path: ("show", path)),
    Call("merge", "prior.safetensors", lambda path: ("merge", path, "other.safetensors")),
    Call("explain --weights", "w.safetensors", lambda path: _explain("data", "--weights", path)),
    Call("fit --weights", "w.pt", lambda path: ("fit", NETWORK, "data", "--weights", path, *HOW)),
    Call("explain FILE.pt2", "model.pt2", lambda path: ("explain", path, "data", *HOW, "--method", "vanilla")),
    *(Call(f"explain picture.{kind}", f"picture.{kind}", _explain) for kind in PICTURES),
    Call("app --prior", "prior.safetensors", lambda path: {"prior": path}),
    Call("app --weights", "w.safetensors", lambda path: {"model": NETWORK, "weights": path}),
    Call("app --names", "names.txt", lambda path: {"names": path}),
    Call("app FILE.pt2", "model.pt2", lambda path: {"model": str(path), "layer": None}),
    *(Call(f"app upload of {kind}", f"picture.{kind}", lambda path: path) for kind in PICTURES),
]  # fmt: skip


def quiet_session(**change):
    """The session of the embedded example with other arguments, without what it prints."""
    with redirect_stdout(io.StringIO()):
        return load_session(**example.ARGUMENTS | change)


def outcome(call: Call, folder: Path, content: bytes, session) -> str:
    """ "accepted", "rejected", or the name and message of another exception."""
    path, out = folder / f"mutated{Path(call.file).suffix}", folder / "out"
    path.write_bytes(content)
    arguments = call.arguments(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(arguments, tuple):
                file = {"fit": "out.safetensors", "merge": "out.safetensors", "show": "out.png"}.get(arguments[0], "")
                result = run(*arguments, "--out", out / file, folder=folder, AGOP_TRACEBACK="1")
                return {0: "accepted", 2: "rejected"}.get(result.returncode, f"exit code {result.returncode}")
            if isinstance(arguments, dict):
                quiet_session(**arguments)
            else:
                session.explain([arguments], ["vanilla"])
            return "accepted"
    except agop.AGOPError:
        return "rejected"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        shutil.rmtree(out, ignore_errors=True)


def try_all(folder: Path, count: int, seed: int = 0) -> tuple[Counter, dict[str, str]]:
    """Make `count` calls with mutated files. Outcomes, and the leaked exceptions by call and seed."""
    session, outcomes, leaks = quiet_session(), Counter(), {}
    for number in range(count):
        call = CALLS[number % len(CALLS)]
        result = outcome(call, folder, call.mutated(folder, random.Random(f"{seed} {number}")), session)
        if result not in ("accepted", "rejected"):
            leaks[f"{call.name}, seed {seed}, number {number}"] = result
            result = "leaked"
        outcomes[result] += 1
    return outcomes, leaks
