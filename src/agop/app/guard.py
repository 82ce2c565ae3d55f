"""ASGI middleware: rejects requests of other sites, and keeps the page from loading anything from elsewhere."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The browser then loads nothing from other machines, and doesn't show this page inside another.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; form-action 'self'; "
    "base-uri 'self'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


def is_local(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """An ASGI app that answers its own page only.

    On a loopback address the Host header must be a loopback name: otherwise another site could point its own name at
    this machine and pass as this one (DNS rebinding). An Origin header must match the Host header.
    """

    def __init__(self, app: App, host: str) -> None:
        self._app, self._local = app, is_local(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass allowed requests on; answer others with 403."""
        reason = self._rejection(scope) if scope["type"] == "http" else None
        if reason is None:
            return await self._app(scope, receive, _with_headers(send))
        await respond(_with_headers(send), 403, reason)

    def _rejection(self, scope: Scope) -> str | None:
        """Reason to reject a request, or None."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._local and not is_local(_host_name(host)):
            return f"this page is at 127.0.0.1 and localhost, not at {host}"
        if origin is not None and urlsplit(origin).netloc != host:
            return "pages of other sites can't use this one"
        return None


async def respond(send: Send, status: int, text: str) -> None:
    """Answer a request with a line of text."""
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})


def _host_name(host: str) -> str:
    """Name in a Host header, without the port; empty if malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return send_with_headers
