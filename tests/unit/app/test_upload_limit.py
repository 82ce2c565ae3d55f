"""Uploads: a limit for what is stored, and no files of aborted uploads. With Gradio's own upload handler."""

import asyncio
import json
import shutil
from contextlib import suppress

import pytest
from starlette.requests import ClientDisconnect

from agop.app import example
from agop.app.page import Page, application
from agop.app.storage import Storage
from tests.app_server import multipart

IMAGE = example.images()[0].read_bytes()
LIMIT = 100_000


@pytest.fixture(scope="module")
def served(session, tmp_path_factory):
    """A page that stores at most LIMIT bytes, and its app."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        page = Page(session, folder)
        page.storage = Storage(folder, "examples", LIMIT)
        yield page, asyncio.run(built(page))


async def built(page):
    """The app. Gradio looks for a running event loop, and would create one and never close it."""
    return application(page, "127.0.0.1")


@pytest.fixture
def app(served):
    yield served
    for path in served[0].folder.iterdir():
        if path.name != "examples":
            shutil.rmtree(path)


async def answer(app, *chunks, size=None, kind, whole=True):
    """Status and text of the answer to an upload in several chunks. If it isn't whole, the client disconnects."""
    messages = []
    parts = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    parts.append({"type": "http.request", "body": b""} if whole else {"type": "http.disconnect"})

    async def receive():
        await asyncio.sleep(0)  # lets other requests run
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message):
        messages.append(message)

    headers = {"host": "127.0.0.1", "content-type": kind} | ({} if size is None else {"content-length": str(size)})
    scope = {"type": "http", "method": "POST", "path": "/gradio_api/upload", "query_string": b"", "root_path": "",
             "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
             "scheme": "http", "server": ("127.0.0.1", 80)}  # fmt: skip
    with suppress(ClientDisconnect):
        await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in messages)
    return messages[0]["status"], body.decode()


def upload(content, **options):
    body, kind = multipart(("a.png", content))
    return {"chunks": [body[:200], body[200:]], "kind": kind, "size": len(body), **options}


def send_all(app, *uploads):
    """Answers to uploads that arrive at the same time."""

    async def run():
        return await asyncio.gather(*(answer(app[1], *each.pop("chunks"), **each) for each in uploads))

    return asyncio.run(run())


def stored(app):
    return sorted(path.name for path in app[0].folder.iterdir() if path.name != "examples")


def test_uploads_are_stored(app):
    [(status, text)] = send_all(app, upload(IMAGE))
    assert status == 200
    [path] = json.loads(text)
    with open(path, "rb") as file:
        assert file.read() == IMAGE


def test_aborted_upload_leaves_no_file(app):
    aborted = upload(bytes(5000), whole=False)
    aborted["chunks"] = aborted["chunks"][:1]
    assert send_all(app, aborted)[0][0] != 200
    assert stored(app) == []


def test_upload_that_outlasts_an_aborted_one_is_stored(app):
    aborted, slow = upload(bytes(5000), whole=False), upload(IMAGE)
    aborted["chunks"] = aborted["chunks"][:1]
    slow["chunks"] = [bytes([byte]) for byte in b"".join(slow["chunks"])]
    answers = send_all(app, aborted, slow)
    assert answers[1][0] == 200
    assert [path.read_bytes() for path in app[0].folder.rglob("a.png")] == [IMAGE]
    assert len(stored(app)) == 1


def test_upload_without_room_is_rejected_and_leaves_no_file(app):
    [(status, text)] = send_all(app, upload(bytes(LIMIT)))
    assert (status, stored(app)) == (413, [])
    assert "no room for this upload: the server keeps 0 MB" in text


def test_uploads_at_the_same_time_share_the_room(app):
    statuses = [status for status, _ in send_all(app, *(upload(bytes([i]) * (LIMIT * 2 // 5)) for i in range(4)))]
    assert sorted(statuses) == [200, 200, 413, 413]
    assert send_all(app, upload(bytes(LIMIT // 3)))[0][0] == 413  # the stored ones are new
    assert len(stored(app)) == 2


def test_upload_of_unknown_size_is_rejected(app):
    assert send_all(app, upload(IMAGE, size=None))[0][0] == 411
    assert stored(app) == []
