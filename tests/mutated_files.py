"""Mutated files: bytes changed at random, and hostile values in the JSON of a file with correct framing."""

import io
import json
import random
import zipfile
from collections.abc import Callable

HOSTILE = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, -0.5, "", "x", "∞" * 300, "\ud800", "../../etc", [], {},
    [0], [-1, 7], [[[[]]]], {"": {}}, ["a", None], 16_000, [16_000, 16_000],
]  # fmt: skip


def mutated_bytes(content: bytes, draw: random.Random) -> bytes:
    """The content with some bytes changed, removed, added, repeated or zeroed."""
    place, length = draw.randrange(len(content) + 1), draw.choice([1, 1, 2, 8, 64])
    head, middle, tail = content[:place], content[place : place + length], content[place + length :]
    return draw.choice(
        [
            lambda: head + bytes(byte ^ (1 << draw.randrange(8)) for byte in middle) + tail,
            lambda: head + draw.randbytes(length) + tail,
            lambda: head + bytes(length) + tail,
            lambda: head + tail,
            lambda: head + middle + middle + tail,
            lambda: head + draw.randbytes(length) + middle + tail,
            lambda: head,
        ]
    )()


def mutated_json(values: object, draw: random.Random) -> object:
    """The JSON value with one value in it replaced or removed."""
    copy = json.loads(json.dumps(values))
    places: list[tuple] = []

    def collect(value):
        keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            places.append((value, key))
            collect(value[key])

    collect(copy)
    if not places:
        return draw.choice(HOSTILE)
    container, key = draw.choice(places)
    if draw.random() < 0.15:
        del container[key]
    elif draw.random() < 0.2 and isinstance(container, dict):
        container[draw.choice(["", "x", "format", "∞"])] = container.pop(key)
    else:
        container[key] = draw.choice(HOSTILE)
    return copy


def mutated_safetensors(content: bytes, draw: random.Random) -> bytes:
    """A safetensors file with a changed header: its metadata, or the dtype, shape or place of a tensor."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header.get("__metadata__", {})
    if "agop" in metadata and draw.random() < 0.8:
        values = json.loads(metadata["agop"])
        values.pop("checksum", None)  # like a file of an earlier version, whose values are believed
        metadata["agop"] = json.dumps(mutated_json(values, draw))
    else:
        header = mutated_json(header, draw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def mutated_zip(content: bytes, draw: random.Random) -> bytes:
    """A zip archive with one changed, renamed or removed part, and correct checksums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice(list(parts))
    part = parts.pop(name)
    if name.endswith(".json") and draw.random() < 0.9:
        part = json.dumps(mutated_json(json.loads(part), draw)).encode()
    elif draw.random() < 0.8:
        part = mutated_bytes(part, draw)
    if draw.random() < 0.9:
        parts[name if draw.random() < 0.9 else f"{name}x"] = part
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for each, data in parts.items():
            archive.writestr(each, data)
    return buffer.getvalue()


def mutated(content: bytes, draw: random.Random, structured: Callable | None) -> bytes:
    """The content with one to three mutations."""
    for _ in range(draw.choice([1, 1, 2, 3])):
        try:
            change = structured if structured is not None and draw.random() < 0.7 else mutated_bytes
            content = change(content, draw)
        except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, NotImplementedError):
            content = mutated_bytes(content, draw)  # an earlier mutation has destroyed the structure
    return content
