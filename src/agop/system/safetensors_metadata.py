"""Metadata of a safetensors file, which the library reads only from paths."""

from __future__ import annotations

import json


def safetensors_metadata(content: bytes) -> dict[str, str]:
    """Metadata of the content of a safetensors file. Raises KeyError if it has none."""
    # The header is a length and a JSON object.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header["__metadata__"])
