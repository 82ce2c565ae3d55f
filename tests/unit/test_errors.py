"""Warnings of agop's own, recorded."""

import warnings

import pytest

from agop.errors import recorded_warnings, warn


def test_own_warnings_are_recorded_once_and_others_reach_the_caller():
    def recorded():
        with recorded_warnings() as messages:
            warn("first")
            warnings.warn("overflow", RuntimeWarning, stacklevel=1)
            warn("second")
            warn("first")
        return messages

    with pytest.warns(RuntimeWarning, match="overflow") as reached:
        messages = recorded()
    assert messages == ["first", "second"]
    assert len(reached) == 1
