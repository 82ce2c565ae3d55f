"""Who may ask the page's server what: nobody's page but its own, and nothing but what it needs."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_API = "/gradio_api"
_READ = {"/", "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json"}
_READ |= {f"{_API}/queue/data", f"{_API}/upload_progress", f"{_API}/startup-events"}
_READ_BELOW = ("/assets/", "/static/", "/svelte/", f"{_API}/heartbeat/")
_JOIN = f"{_API}/queue/join"
_WRITTEN = {_JOIN, f"{_API}/upload", f"{_API}/cancel", f"{_API}/reset"}
_FILE = f"{_API}/file="
_MOST_QUESTION_BYTES = 2**20
# The browser itself then refuses to ask any other machine, and to show this page inside another.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; form-action 'self'; "
    "base-uri 'self'"
)
_ADDED = [(b"content-security-policy", _POLICY.encode()), (b"x-content-type-options", b"nosniff"),
          (b"referrer-policy", b"no-referrer")]  # fmt: skip


def is_local(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """A server behind a gate.

    A local one answers only to local names, so that no other site can pose as it (DNS rebinding). What a browser
    sends for another site's page is refused. Files are those below `folder`, and addresses of others are not followed.
    """

    def __init__(self, app: App, host: str, folder: Path) -> None:
        self._app, self._local, self._folder = app, is_local(host), folder.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed; answer the rest."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close"})
        reason = self._foreign(_headers(scope)) or self._closed(scope["method"], scope["path"])
        if reason is None and scope["path"] == _JOIN:
            body = await _body(receive)
            reason = self._reaching_out(body)
            receive = _again(body, receive)
        if reason is not None:
            return await _refuse(send, *reason)
        await self._app(scope, receive, _with_policy(send))

    def _foreign(self, headers: dict[str, str]) -> tuple[int, str] | None:
        """Why a request comes from elsewhere, by the names it carries."""
        host = headers.get("host", "")
        if self._local and not is_local(_name(host)):
            return 403, f"this page answers to 127.0.0.1 and localhost, not to {host}"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "a page of another site may not use this one"
        return None

    def _closed(self, method: str, path: str) -> tuple[int, str] | None:
        """Why a path is not served."""
        if method == "POST":
            return None if path.rstrip("/") in _WRITTEN else (404, "there is nothing here")
        if path.startswith(_FILE):
            return None if self._own(path.removeprefix(_FILE)) else (403, "this file is not served")
        if method in ("GET", "HEAD") and (path in _READ or path.startswith(_READ_BELOW)):
            return None
        return 404, "there is nothing here"

    def _reaching_out(self, body: bytes | None) -> tuple[int, str] | None:
        """Why a question is not asked: it names a file that nobody uploaded, or an address to fetch."""
        if body is None:
            return 413, "this is too long"
        try:
            named = list(_paths(json.loads(body)))
        except (ValueError, RecursionError):
            return 400, "this is not JSON"
        return None if all(self._own(path) for path in named) else (403, "only uploaded files can be used")

    def _own(self, path: Any) -> bool:
        """True for a file in the page's own folder."""
        try:
            return isinstance(path, str) and Path(path).is_absolute() and self._folder in Path(path).resolve().parents
        except (OSError, ValueError):
            return False


def _name(host: str) -> str:
    """The name in a Host header, without its port; empty if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _paths(value: Any) -> Iterator[Any]:
    """Whatever stands under "path" anywhere in a question."""
    if isinstance(value, dict):
        yield from (path for name, path in value.items() if name == "path" and path is not None)
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _paths(part)


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or None if it is too long."""
    body = b""
    more = True
    while more and len(body) <= _MOST_QUESTION_BYTES:
        message = await receive()
        body += bytes(message.get("body", b""))
        more = message.get("more_body", False)
    return body if len(body) <= _MOST_QUESTION_BYTES else None


def _again(body: bytes | None, receive: Receive) -> Receive:
    """A receive that gives the body that was read, then goes on."""
    waiting = [{"type": "http.request", "body": body or b"", "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return replay


def _with_policy(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_ADDED]
        await send(message)

    return sent


async def _refuse(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_ADDED]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{reason}\n".encode()})
