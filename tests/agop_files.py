"""The bytes of an AGOP file, for tests that change them."""

import hashlib
import json
from typing import Any

import torch
from safetensors.torch import save


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


def with_checksum(tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> bytes:
    """A file with these tensors and this JSON object, whose checksum is right."""
    values = {name: value for name, value in values.items() if name != "checksum"}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return save(tensors, {"agop": json.dumps(values | {"checksum": digest.hexdigest()[:16]})})
