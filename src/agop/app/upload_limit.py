"""ASGI middleware: rejects uploads that don't fit into the storage, and removes the files of aborted ones."""

from __future__ import annotations

from agop.app.guard import App, Receive, Scope, Send, respond
from agop.app.storage import Storage


class UploadLimit:
    """An ASGI app that accepts uploads only while there is room for them."""

    def __init__(self, app: App, storage: Storage) -> None:
        self._app, self._storage = app, storage
        self._sizes: list[int] = []  # of the uploads that are being received

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass requests on; answer an upload of unknown size with 411, and one without room with 413."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith("/upload"):
            return await self._app(scope, receive, send)
        length = dict(scope["headers"]).get(b"content-length", b"")
        if not length.isdigit():
            return await _reject(receive, send, 411, "an upload needs the header Content-Length")
        size = int(length)
        if not self._storage.make_room(size + sum(self._sizes)):
            most = self._storage.most_bytes // 2**20
            reason = f"no room for this upload: the server keeps {most:,} MB. Upload fewer images, or try again later"
            return await _reject(receive, send, 413, reason)
        self._sizes.append(size)
        try:
            await self._app(scope, receive, send)
        finally:
            self._sizes.remove(size)
            if not self._sizes:
                self._storage.remove_unfinished()


async def _reject(receive: Receive, send: Send, status: int, reason: str) -> None:
    """Answer after the whole request: a browser that is still sending would report a lost connection."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await respond(send, status, reason)
