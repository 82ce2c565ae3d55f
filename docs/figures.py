"""Figures in the tutorials."""

from __future__ import annotations

import io
import re
from typing import Any


def svg(figure: Any) -> str:
    """A Matplotlib figure as inline SVG that fits the width of the page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight")
    text = file.getvalue()
    return re.sub(
        r'width="[^"]*" height="[^"]*"',
        'style="max-width: 100%; background: white"',
        text[text.index("<svg") :],
        count=1,
    )
