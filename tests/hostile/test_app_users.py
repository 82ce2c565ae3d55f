"""Several users of one running `agop app` at a time: every request is answered with its own images.

AGOP_HOSTILE_REQUESTS sets the number of requests, AGOP_HOSTILE_USERS the number of users.
"""

import io
import json
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.app_server import explain, explain_event, serving, upload

pytestmark = pytest.mark.hostile
REQUESTS = int(os.environ.get("AGOP_HOSTILE_REQUESTS", "250"))
USERS = int(os.environ.get("AGOP_HOSTILE_USERS", "8"))


def noise(seed):
    """A PNG file."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (16, 16), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def outcome(address, event, number):
    """Upload two images and a file that isn't one, and explain them."""
    names = [f"first-{number}.png", f"second-{number}.png"]
    files = [(name, noise(2 * number + place)) for place, name in enumerate(names)]
    code, text = upload(address, *files, (f"note-{number}.png", b"a note"))
    if code != 200:
        return f"upload: {code} {text}"
    answer = explain(address, json.loads(text), event)
    if not answer["success"]:
        return json.dumps(answer["output"])[:300]
    page = answer["output"]["data"][0]
    complete = page.count('class="agop-card"') == 2 and f"note-{number}.png: isn" in page
    return "held" if complete and all(name in page for name in names) else page[:300]


def test_concurrent_users(tmp_path):
    with serving(tmp_path) as (address, process), ThreadPoolExecutor(USERS) as users:
        event = explain_event(address)
        outcomes = Counter(users.map(lambda number: outcome(address, event, number), range(REQUESTS)))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    print(f"\nrequests of {USERS} concurrent users of the app: {REQUESTS} tried, {outcomes['held']} held")
    assert (tmp_path / "errors").read_text() == ""
    assert outcomes == {"held": REQUESTS}
