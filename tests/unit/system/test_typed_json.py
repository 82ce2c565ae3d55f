"""JSON from files, as values of annotated types."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from agop.system.typed_json import convert, parse


@dataclass(frozen=True)
class Part:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    weights: dict[str, float] = field(default_factory=dict)
    more: Any = None


def test_values_of_the_annotated_types_are_converted():
    values = parse(b'{"parts": [{"name": "a", "size": 3, "new": 1}, {"name": "b"}], "weights": {"a": 1, "b": 0.5}}')
    whole = convert(Whole, values, "whole")
    assert whole == Whole((Part("a", 3), Part("b")), {"a": 1.0, "b": 0.5})
    assert type(whole.weights["a"]) is float


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"parts": {}}', "whole.parts is {}, not list"),
        (b'{"parts": [{"name": 3}]}', "whole.parts.name is 3, not str"),
        (b'{"parts": [{"name": "a", "size": true}]}', "whole.parts.size is True, not int"),
        (b'{"parts": [{}]}', "whole.parts lacks name"),
        (b'{"parts": [], "weights": {"a": "1"}}', "whole.weights.a is '1', not float"),
        (b"[]", r"whole is \[\], not dict"),
    ],
)
def test_other_types_raise_with_the_place_and_the_value(content, message):
    with pytest.raises(ValueError, match=message):
        convert(Whole, parse(content), "whole")


@pytest.mark.parametrize(
    "content",
    [
        b"NaN",
        b"-Infinity",
        b"1e400",
        b"1e101",
        b"1" * 5000,
        b"9007199254740993",
        b"[" * 100_000,
        b"",
        b"{",
        b"\xff",
        b"1 2",
    ],
)
def test_numbers_without_bounds_and_malformed_text_raise_value_error(content):
    with pytest.raises(ValueError, match=r"."):
        parse(content)


def test_control_characters_are_replaced():
    text = parse(rb'"a\u001b[2J\u0000\ud800 \n\t\u00e9\ud83d\ude00"')
    assert convert(str, text, "text") == "a\ufffd[2J\ufffd\ufffd \n\té😀"
    assert convert(dict[str, int], {"\x1b": 1}, "counts") == {"\ufffd": 1}
