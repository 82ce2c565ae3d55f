"""`agop app`: a web page that explains uploaded images. Needs Gradio (the extra `app`), imported when it starts."""

from __future__ import annotations

from importlib.util import find_spec

from agop.errors import MissingExtraError


def check_installed() -> None:
    """Raise MissingExtraError if Gradio isn't installed."""
    if find_spec("gradio") is None:
        raise MissingExtraError("agop app", "gradio", "app")
