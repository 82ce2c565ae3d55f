"""Waiting for a condition, with a deadline instead of a guess."""

import time


def wait_until(condition, seconds=600):
    """Poll until the condition holds and return its value. Fails after the given number of seconds."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"still waiting after {seconds} seconds"
        time.sleep(0.02)
    return result
