"""Which models and files the app loads: nothing that is downloaded, and nothing that is a pickle."""

from __future__ import annotations

from pathlib import Path

from agop.errors import FileError, ModelError

_SAVE_WEIGHTS = "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"


def check_model_files(model: str, weights: Path | None, prior: Path | None) -> None:
    """Raise unless the model, its weights and its prior load without a download and without a pickle."""
    _check_safetensors("weights", weights, _SAVE_WEIGHTS)
    _check_safetensors("prior", prior, "`agop fit`")
    library, _, name = model.partition(":")
    if library in ("torchvision", "timm") and weights is None:
        raise ModelError(f"the app doesn't download weights for {model}: pass --weights FILE.safetensors")
    if library == "hf":
        _check_folder(Path(name).expanduser(), weights)


def _check_safetensors(option: str, path: Path | None, maker: str) -> None:
    if path is None:
        return
    if path.suffix != ".safetensors":  # another kind may be a pickle, which runs code when it is read
        raise FileError(f"{option} {path} isn't a .safetensors file, the only kind it reads: make one with {maker}")
    if not path.is_file():
        raise FileError(f"{option} {path} doesn't exist: check the path")


def _check_folder(folder: Path, weights: Path | None) -> None:
    """Raise unless a Hugging Face model is a local folder with safetensors weights."""
    if not folder.is_dir():
        raise ModelError(f"hf:{folder} isn't a local folder, and the app doesn't download models: pass hf:FOLDER")
    names = ("model.safetensors", "model.safetensors.index.json")
    if weights is None and not any((folder / name).is_file() for name in names):
        raise ModelError(
            f"hf:{folder} has no model.safetensors, the only weights the app reads: "
            "save it with model.save_pretrained(FOLDER)"
        )
