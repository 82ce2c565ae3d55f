"""Command-line and app calls with mutated files: each must succeed or raise an AGOPError."""

import io
import random
import shutil
import warnings
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
from agop.cli.app import load_session
from agop.errors import AGOPError
from agop.pictures.preprocessing import Preprocessing
from tests.command import run
from tests.image_files import save, save_random
from tests.mutated_files import mutated, mutated_safetensors, mutated_zip

NETWORK = "agop.networks:CNN8by8"
HOW = ("--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")
PICTURES = {"png": {}, "jpeg": {}, "gif": {}, "bmp": {}, "tiff": {"compression": "tiff_lzw"}, "webp": {}, "ppm": {}}


@dataclass(frozen=True)
class Call:
    """A call with one mutated file: its name, the change of its structure, and what is called with its path."""

    name: str
    file: str
    structured: Callable | None
    arguments: Callable[[Path], tuple]


def prepare(folder: Path) -> None:
    """Write valid files of all kinds: images, weights, AGOP files, an exported program and class names."""
    save_random(folder / "data" / "a", "0.png", "1.png")
    save_random(folder / "data" / "b", "0.png")
    for path in (folder / "data").rglob("*.png"):
        save(folder / "masks" / path.relative_to(folder / "data"), 255 * np.eye(8))
    weights = load_file(example.WEIGHTS)
    shutil.copy(example.WEIGHTS, folder / "w.safetensors")
    torch.save(weights, folder / "w.pt")
    model, images = example.network(), torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for name, part in (("prior", images[:5]), ("other", images[5:])):
        prior = agop.fit(model, [part], only_correct=False, per_class=True, progress=False)
        how = Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
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
    Call("explain --prior", "prior.safetensors", mutated_safetensors, lambda path: (
        "explain", NETWORK, "data", "--weights", "w.safetensors", "--prior", path, "--method", "agop-weighted")),
    Call("evaluate --prior", "prior.safetensors", mutated_safetensors, lambda path: (
        "evaluate", NETWORK, "data", "masks", "--weights", "w.safetensors", "--prior", path, "--method", "agop-global",
        "--metric", "energy")),
    Call("show", "prior.safetensors", mutated_safetensors, lambda path: ("show", path)),
    Call("merge", "prior.safetensors", mutated_safetensors, lambda path: ("merge", path, "other.safetensors")),
    Call("explain --weights", "w.safetensors", mutated_safetensors, lambda path: _explain("data", "--weights", path)),
    Call("fit --weights", "w.pt", mutated_zip, lambda path: ("fit", NETWORK, "data", "--weights", path, *HOW)),
    Call("explain FILE.pt2", "model.pt2", mutated_zip, lambda path: (
        "explain", path, "data", *HOW, "--method", "vanilla")),
    *(Call(f"explain picture.{kind}", f"picture.{kind}", None, _explain) for kind in PICTURES),
]  # fmt: skip
APP_CALLS = [
    Call("app --prior", "prior.safetensors", mutated_safetensors, lambda path: {"prior": path}),
    Call("app --weights", "w.safetensors", mutated_safetensors, lambda path: {"model": NETWORK, "weights": path}),
    Call("app --names", "names.txt", None, lambda path: {"names": path}),
    Call("app FILE.pt2", "model.pt2", mutated_zip, lambda path: {"model": str(path), "layer": None}),
    *(Call(f"app upload of {kind}", f"picture.{kind}", None, lambda path: path) for kind in PICTURES),
]  # fmt: skip


def outcome(call: Call, folder: Path, content: bytes, session) -> str:
    """ "accepted", "rejected", or the name and message of another exception."""
    path = folder / f"mutated{Path(call.file).suffix}"
    path.write_bytes(content)
    out = folder / "out"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if call in CALLS:
                result = run(*call.arguments(path), *_out(call, out), folder=folder, AGOP_TRACEBACK="1")
                return {0: "accepted", 2: "rejected"}.get(result.returncode, f"exit code {result.returncode}")
            arguments = call.arguments(path)
            if isinstance(arguments, Path):
                session.explain([arguments], ["vanilla"])
            else:
                quiet_session(**arguments)
            return "accepted"
    except AGOPError:
        return "rejected"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        shutil.rmtree(out, ignore_errors=True)


def quiet_session(**change):
    """The session of the embedded example with other arguments, without what it prints."""
    with redirect_stdout(io.StringIO()):
        return load_session(**example.ARGUMENTS | change)


def _out(call: Call, out: Path) -> tuple:
    file = {"fit": "out.safetensors", "merge": "out.safetensors", "show": "out.png"}.get(call.name.split()[0])
    return ("--out", out if file is None else out / file)


def try_all(folder: Path, count: int, seed: int = 0) -> tuple[Counter, dict[str, str]]:
    """Make `count` calls with mutated files. Outcomes by call, and the leaked exceptions with their seeds."""
    session = quiet_session()
    outcomes: Counter = Counter()
    leaks: dict[str, str] = {}
    calls = CALLS + APP_CALLS
    for number in range(count):
        call = calls[number % len(calls)]
        draw = random.Random(f"{seed} {number}")
        content = mutated((folder / call.file).read_bytes(), draw, call.structured)
        result = outcome(call, folder, content, session)
        if result not in ("accepted", "rejected"):
            leaks[f"{call.name}, seed {seed}, number {number}"] = result
            result = "leaked"
        outcomes[call.name, result] += 1
    return outcomes, leaks
