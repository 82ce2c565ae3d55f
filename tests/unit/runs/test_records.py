"""JSON files of a run folder."""

from dataclasses import dataclass

import pytest

from agop.errors import FileError
from agop.runs.records import parse, read_record, write_record


@dataclass(frozen=True)
class Facts:
    name: str
    sizes: tuple[int, ...] = ()


def test_a_record_is_read_back(tmp_path):
    write_record(tmp_path / "facts.json", {"name": "a", "sizes": [1, 2]})
    assert read_record(tmp_path / "facts.json", Facts, "run again") == Facts("a", (1, 2))


@pytest.mark.parametrize("values", [{"name": 3}, {"sizes": [1]}, {"name": "a", "sizes": 2}])
def test_other_types_raise_with_the_fix(values, tmp_path):
    write_record(tmp_path / "facts.json", values)
    with pytest.raises(FileError, match=r"facts\.json is damaged \(facts.*\): run again"):
        read_record(tmp_path / "facts.json", Facts, "run again")


def test_every_changed_bit_of_the_values_is_noticed(tmp_path):
    path = tmp_path / "facts.json"
    write_record(path, {"name": "abc"})
    content = path.read_bytes()
    start = content.index(b"abc")
    for place in range(start, start + 3):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(FileError, match="is damaged"):
                read_record(path, Facts, "run again")


@pytest.mark.parametrize(
    "content",
    [b"NaN", b"-Infinity", b"1e400", b"1e101", b"1" * 5000, b"9007199254740993",
     b"[" * 100_000, b'{"x":' * 500, b"\xff", b"1 2"],
)  # fmt: skip
def test_numbers_without_bounds_and_malformed_text_raise_value_error(content):
    with pytest.raises(ValueError, match=r"."):
        parse(b'{"x": ' + content + b"}")


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b"null", b"{"])
def test_other_than_an_object_raises_value_error(content):
    with pytest.raises(ValueError, match=r"."):
        parse(content)


def test_control_characters_are_replaced():
    values = parse(rb'{"x\u001b": ["a\u001b[2J\u0000\ud800 \n\t\u00e9\ud83d\ude00"]}')
    assert values == {"x\ufffd": ["a\ufffd[2J\ufffd\ufffd \n\té😀"]}
