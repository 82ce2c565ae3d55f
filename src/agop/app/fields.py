"""What the page's fields say, and which models and files the page takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agop.errors import FileError, InputError, ModelError

_MOST_NAMES_BYTES = 2**20


@dataclass(frozen=True)
class Fields:
    """The texts of the fields, as on the command line; an empty one is not given."""

    model: str
    weights: str = ""
    prior: str = ""
    classes: str = ""
    size: str = ""
    mean: str = ""
    std: str = ""
    gray: bool = False
    layer: str = ""
    names: str = ""

    def class_count(self) -> int | None:
        """The number of classes of a library's model, if given."""
        if not self.classes:
            return None
        if not self.classes.isdecimal() or int(self.classes) < 1:
            raise InputError(f"classes is {self.classes!r}: give a number above 0, or leave it empty")
        return int(self.classes)


def check(fields: Fields) -> None:
    """Raise unless the model and its files can be loaded without a download and without a pickle."""
    if not fields.model:
        raise ModelError("no model is named: give package.module:function, torchvision:NAME, hf:FOLDER or FILE.pt2")
    tensors_file("weights", fields.weights, "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')")
    tensors_file("the AGOP file", fields.prior, "`agop fit`")
    library, _, name = fields.model.partition(":")
    if library in ("torchvision", "timm") and not fields.weights:
        raise ModelError(f"{fields.model} would be downloaded: give its weights as a safetensors file")
    if library == "hf":
        _check_folder(Path(name).expanduser(), bool(fields.weights))


def tensors_file(what: str, text: str, maker: str) -> Path | None:
    """The safetensors file a field names, or None if it is empty. Another kind may be a pickle, which runs code."""
    if not text:
        return None
    path = Path(text).expanduser()
    if path.suffix != ".safetensors":
        raise FileError(f"{what} {text!r} is not a .safetensors file, the only kind taken here: make one with {maker}")
    if not path.is_file():
        raise FileError(f"{what} {text!r} is not a file on this machine: give its full path")
    return path


def names_in(text: str) -> tuple[str, ...]:
    """The names of the classes, one a line, of the file a field names; none if it is empty."""
    if not text:
        return ()
    path = Path(text).expanduser()
    try:
        if not path.is_file() or path.stat().st_size > _MOST_NAMES_BYTES:
            raise OSError("it is not a file of at most 1 MB")
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise FileError(f"the names {text!r} cannot be read ({error}): give a text file, one class a line") from error


def _check_folder(folder: Path, weights_given: bool) -> None:
    """Raise unless a Hugging Face model is a folder here, whose weights are safetensors."""
    if not folder.is_dir():
        raise ModelError(f"hf:{folder} is not a folder on this machine, and nothing is downloaded here: give a folder")
    if not weights_given and not any((folder / f"model.safetensors{end}").is_file() for end in ("", ".index.json")):
        raise ModelError(f"hf:{folder} holds no model.safetensors, the only kind of weights taken here: save it anew")
