"""`agop app`: a page on which a person explains their own pictures. Its Gradio is an extra, imported when it starts."""

from __future__ import annotations

from importlib.util import find_spec

from agop.errors import ModelError


def check_installed() -> None:
    """Raise unless the extra is there."""
    if find_spec("gradio") is None:
        raise ModelError("agop app needs gradio: pip install 'agop[app]'")
