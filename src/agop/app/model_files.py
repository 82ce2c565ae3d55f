"""Which models the app loads: nothing that is downloaded."""

from __future__ import annotations

from pathlib import Path

from agop.errors import ModelError


def check_no_download(model: str, weights: Path | None) -> None:
    """Raise if loading the model would download it or its weights."""
    library, _, name = model.partition(":")
    if library in ("torchvision", "timm") and weights is None:
        raise ModelError(f"the app doesn't download weights for {model}: pass --weights FILE")
    if library == "hf" and not Path(name).expanduser().is_dir():
        raise ModelError(f"{model} isn't a local folder, and the app doesn't download models: pass hf:FOLDER")
