"""The guard rejects requests of other sites, and adds headers."""

import asyncio

import pytest

from agop.app.guard import Guard, is_local

PATHS = ["/", "/gradio_api/queue/join", "/gradio_api/upload"]


async def answering(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def response(path, address="127.0.0.1", **headers):
    """Status and headers of the answer to a request."""
    messages = []

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        messages.append(message)

    headers = {"host": "127.0.0.1:7860", **headers}
    scope = {"type": "http", "method": "POST", "path": path,
             "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}  # fmt: skip
    asyncio.run(Guard(answering, address)(scope, receive, send))
    return messages[0]["status"], dict(messages[0]["headers"])


def test_only_loopback_addresses_are_local():
    assert all(map(is_local, ["127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"]))
    others = ["0.0.0.0", "192.168.1.5", "::", "example.org", "127.0.0.1.example.org", "localhost.example.org", ""]
    assert not any(map(is_local, others))


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:8000", "[::1]:7860", "localhost"])
def test_loopback_names_pass_with_security_headers(host):
    status, headers = response("/", host=host, origin=f"http://{host}")
    assert status == 200
    assert b"default-src 'self'" in headers[b"content-security-policy"]
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example:7860", "127.0.0.1.evil.example", "", "192.168.1.5:7860", "[bad"])
def test_other_host_names_are_rejected(path, host):
    """DNS rebinding: a site's own name that resolves to this machine."""
    assert response(path, host=host, origin=f"http://{host}")[0] == 403
    assert response(path, host=host)[0] == 403


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "file://", "http://localhost:7860"]
)
def test_other_origins_are_rejected(path, address, origin):
    assert response(path, address, origin=origin)[0] == 403


def test_public_address_accepts_its_own_name():
    assert response("/", "0.0.0.0", host="lab.example:7860", origin="http://lab.example:7860")[0] == 200
