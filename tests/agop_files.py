"""The bytes of an AGOP file, for tests that change them."""

import json
from typing import Any


def flipped(content: bytes, bit: int) -> bytes:
    """The content with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def metadata_of(content: bytes) -> dict[str, Any]:
    """The JSON object of an AGOP file."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    values: dict[str, Any] = json.loads(header["__metadata__"]["agop"])
    return values
