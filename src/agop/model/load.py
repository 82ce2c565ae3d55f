"""Load models: from libraries, user code, weight files and exported programs. No code from weight files is run."""

import importlib
import io
import json
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from agop.errors import AGOPError, FileError, InputError, MissingExtraError, ModelError, UnknownNameError, warn
from agop.io import read_bytes
from agop.registry import unknown_name_error

FORMS = {
    "package.module:function": "the function's return value; the current folder is searched first",
    "torchvision:NAME": "a torchvision model, for example torchvision:resnet18",
    "timm:NAME": "a timm model",
    "hf:NAME_OR_FOLDER": "a Hugging Face image classifier",
    "FILE.pt2": "a model saved with torch.export.save",
}
_LIBRARIES = ("torchvision", "timm", "hf")
_WRAPPERS = ("state_dict", "model_state_dict", "model")
# Files of torch.save start like a zip archive or, before torch 1.6, like a pickle.
_STARTS = (b"PK\x03\x04", b"\x80")
_SAVE = "save weights with torch.save(model.state_dict(), 'weights.pth') or as safetensors"
# The parts that torch.export.save writes for plain tensors. torch.export.load unpickles or runs other parts.
_KNOWN_PARTS = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|\.data/(version|serialization_id)|\.format_version|models/model\.json"
    r"|data/sample_inputs/model\.pt|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json))"
)


def load_model(spec: str, weights: str | Path | None = None, num_classes: int | None = None) -> nn.Module:
    """The model that a spec names, with the weights of a file.

    Args:
        spec: "package.module:function" in your code, "torchvision:NAME", "timm:NAME", "hf:NAME_OR_FOLDER", or a file
            FILE.pt2 of torch.export.save. An exported program is a program: load only files that you trust.
        weights: A state dict of torch.save, a checkpoint that has one, or a safetensors file. Without it, a library's
            model comes with its own pretrained weights.
        num_classes: Size of a library model's last layer.

    Returns:
        The model, on the CPU.

    Raises:
        ModelError: There is no such model, or the weights don't match it.
        FileError: The file has no weights, or more than weights: loading it could run code.

    Example:
        >>> model = agop.load_model("torchvision:resnet18", "weights.pth", num_classes=10)
        >>> maps = agop.explain(model.eval(), images, "vanilla")
    """
    path = None if weights is None else Path(weights)
    if spec.endswith(".pt2"):
        model = _exported(Path(spec))
    else:
        library, _, name = spec.partition(":")
        if not library or not name:
            raise ModelError(f"{spec!r} does not name a model: give {', '.join(FORMS)}")
        if library == "hf" and path is not None:
            return _hugging_face_with_weights(name, path, num_classes)
        if library in _LIBRARIES:
            model = _library_model(library, name, path is None, num_classes)
        elif num_classes is not None:
            raise InputError("--num-classes is for a library's models: set the number of classes in your function")
        else:
            model = _user_model(spec)
    if path is not None:
        load_weights(model, path)
    return model


def _library_model(library: str, name: str, pretrained: bool, num_classes: int | None) -> nn.Module:
    package: Any = import_library("transformers" if library == "hf" else library)
    options = {} if num_classes is None else {"num_labels" if library == "hf" else "num_classes": num_classes}
    if library == "torchvision" and name.lower() not in package.models.list_models():
        raise unknown_name_error("torchvision model", name, package.models.list_models())
    try:
        if library == "torchvision":
            model = package.models.get_model(name, weights="DEFAULT" if pretrained else None, **options)
        elif library == "timm":
            model = package.create_model(name, pretrained=pretrained, **options)
        else:
            model = package.AutoModelForImageClassification.from_pretrained(name, **options)
    except Exception as error:  # each library raises its own
        hint = "; if its weights can't be downloaded, give --weights FILE" if pretrained else ""
        raise ModelError(f"{library}:{name} can't be loaded: {type(error).__name__}: {error}{hint}") from error
    return model  # type: ignore[no-any-return]


def _hugging_face_with_weights(name: str, weights: Path, num_classes: int | None) -> nn.Module:
    """Through the library, which maps older names of the same weights."""
    transformers = import_library("transformers")
    options = {} if num_classes is None else {"num_labels": num_classes}
    config = transformers.AutoConfig.from_pretrained(name, **options)
    untrained = transformers.AutoModelForImageClassification.from_config(config)
    model: nn.Module
    model, report = type(untrained).from_pretrained(
        None, config=config, state_dict=state_dict(weights, untrained), output_loading_info=True
    )
    check_complete(weights, sorted(report["missing_keys"]), sorted(report["unexpected_keys"]))
    return model


def import_library(library: str) -> Any:
    """Import torchvision, timm or transformers. Raises with the command that installs it."""
    # With this torch: without it, pip would replace torch by the latest CUDA build.
    torch_version = f"torch=={torch.__version__.partition('+')[0]}"
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name == library and library != "torchvision":  # which has no extra
            raise MissingExtraError(f"a {library} model", library, beside=torch_version) from error
        raise ModelError(f"a {library} model needs {error.name}: pip install {error.name} {torch_version}") from error
    except Exception as error:  # torchvision for another torch raises RuntimeError
        raise ModelError(
            f"{library} is installed but can't be imported ({type(error).__name__}: {error}): "
            f"pip install {library} {torch_version}, from the index that your torch came from"
        ) from error


def _user_model(spec: str) -> nn.Module:
    """The user's module, or the return value of the user's function."""
    value = load_user_object(spec, "model", callable)
    try:
        model = value if isinstance(value, nn.Module) else value()
    except (Exception, SystemExit) as error:  # the user's own code
        raise ModelError(f"{spec} raised {type(error).__name__}: {error}; it is called without arguments") from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"{spec} returned a {type(model).__name__}: it should return a torch.nn.Module")
    return model


def load_user_object(spec: str, kind: str, is_candidate: Callable[[Any], bool]) -> Any:
    """Resolve package.module:NAME. Raises UnknownNameError, which lists the module's candidates of that kind."""
    module_name, _, path = spec.partition(":")
    module = value = _import_user_module(module_name)
    for part in path.split("."):
        if not hasattr(value, part):
            public = [name for name, other in vars(module).items() if is_candidate(other) and not name.startswith("_")]
            if not public:
                raise UnknownNameError(f"no {kind} is named {spec!r}: {module_name} defines no {kind}")
            raise unknown_name_error(kind, spec, [f"{module_name}:{name}" for name in public])
        value = getattr(value, part)
    return value


def _import_user_module(name: str) -> Any:
    """Import a module from the current folder or the Python path. Raises ModelError if that fails."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"omit the .py: {name[:-3]}:…" if name.endswith(".py") else "run this from its folder"
            raise ModelError(f"no module named {name}: {hint}") from error
        raise ModelError(f"{name} needs {error.name}, which isn't installed") from error
    except SystemExit as error:
        raise ModelError(
            f"{name} can't be imported, because it calls sys.exit({error.code!r}): move what it runs as a script below "
            "if __name__ == '__main__':"
        ) from error
    except Exception as error:  # the user's own code
        raise ModelError(f"{name} can't be imported: {type(error).__name__}: {error}") from error


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a file's weights into the model. All names and shapes must match."""
    try:
        missing, unexpected = model.load_state_dict(state_dict(path, model), strict=False)
    except RuntimeError as error:
        problems = " ".join(line.strip() for line in str(error).splitlines()[1:] or [str(error)])
        raise ModelError(
            f"{path} does not match the model: {problems} Build the network as in training (for another number of "
            "classes of a library's model: --num-classes)"
        ) from error
    check_complete(path, missing, unexpected)


def check_complete(path: Path, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raise unless the file has all weights of the model and no others."""
    problems = [f"it lacks {_some(missing)}"] if missing else []
    problems += [f"the model doesn't have {_some(unexpected)}"] if unexpected else []
    if problems:
        raise ModelError(f"{path} does not match the model: {'; '.join(problems)}")


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def state_dict(path: Path, model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a file or checkpoint, without a prefix before the names of the model's tensors."""
    state = _read_weights(path)
    for key in _WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        keys = f" (keys {', '.join(map(str, list(state)[:5]))})" if isinstance(state, dict) else ""
        raise FileError(f"{path} does not contain a state dict{keys}: save model.state_dict()")
    # Files of old torch versions have no num_batches_tracked, and load without it.
    names = [name for name in model.state_dict() if not name.endswith("num_batches_tracked")]
    prefix = _prefix(path, state, names)
    outside = [name for name in state if not name.startswith(prefix)]
    if outside:
        warn(f"{path}: ignored {_some(outside)}, which isn't below {prefix}")
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _prefix(path: Path, state: Collection[str], names: Collection[str]) -> str:
    """What precedes the model's names in the file: module. of DataParallel, model. of a LightningModule, or nothing."""
    prefixes = sorted({"", *(name[: dot.end()] for name in state for dot in re.finditer(r"\.", name))})
    matches = {prefix: sum(prefix + name in state for name in names) for prefix in prefixes}
    complete = [prefix for prefix in prefixes if matches[prefix] == len(names)]
    if "" in complete:
        return ""
    if len(complete) > 1:
        raise ModelError(f"{path} has the model's weights below each of {', '.join(complete)}: save one of them")
    # Without a match, the error should show the file's own names, or those behind a prefix of all of them.
    common = complete or [prefix for prefix in prefixes if all(name.startswith(prefix) for name in state)]
    return max(common, key=lambda prefix: matches[prefix])


def _read_weights(path: Path) -> Any:
    """What a safetensors file or a file of torch.save holds, if it holds only tensors and plain values."""
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
    if not head:
        raise FileError(f"{path} is empty: {_SAVE}")
    if path.suffix == ".safetensors" or head[8:9] == b"{":  # 8 bytes of length, then a JSON header
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise FileError(f"{path} is not a safetensors file, or is truncated ({error}): {_SAVE}") from error
    if not head.startswith(_STARTS):
        raise FileError(f"{path} is not a weights file: {_SAVE}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch asks to report unknown pickles, which raise here
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a corrupt file can raise anything
        if isinstance(error, UnpicklingError) and "unsupported" in str(error).lower():
            raise FileError(
                f"{path} contains more than weights, and loading it could run code: save model.state_dict(), or a "
                "safetensors file"
            ) from error
        raise FileError(
            f"{path} is corrupt, truncated, or not a weights file: download it again, or {_SAVE}"
        ) from error


def _exported(path: Path) -> nn.Module:
    """The module of a file that torch.export.save wrote. Raises if torch.export.load could unpickle a part."""
    content = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _refuse_pickles(path, archive)
        return torch.export.load(io.BytesIO(content)).module()
    except AGOPError:
        raise
    except Exception as error:  # torch raises anything for an unknown file
        raise ModelError(f"{path} can't be read as an exported program: {error}: export the model again") from error


def _refuse_pickles(path: Path, archive: zipfile.ZipFile) -> None:
    names = archive.namelist()
    suspicious = [name for name in names if not _KNOWN_PARTS.fullmatch(name)]
    suspicious += [name for name in names if sum(name.lower() == other.lower() for other in names) > 1]
    configs = [json.loads(archive.read(name))["config"] for name in names if name.endswith("_config.json")]
    suspicious += [part for config in configs for part, entry in config.items() if entry["use_pickle"] is not False]
    for name in (name for name in names if name.endswith("/sample_inputs/model.pt")):
        try:
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        except Exception:  # whatever is wrong with it, torch would unpickle it next
            suspicious.append(name)
    if suspicious or not configs:
        parts = ", ".join(suspicious[:3]) or "an older format"
        raise ModelError(f"{path} has parts that may be pickles and run code ({parts}): export the model again")
