"""`agop app`: a web page that explains uploaded images. Needs Gradio (the extra `app`), imported when it starts.

The server listens on this machine only by default, without analytics, and removes its temporary files.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agop.errors import InputError

if TYPE_CHECKING:
    from agop.app.page import Session
    from agop.images.overlays import Colouring

# Read by Gradio and Hugging Face libraries when they are imported.
_ENVIRONMENT = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def is_local(host: str) -> bool:
    """True for an address that only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    load: Callable[[], Session],
    examples: Sequence[Path],
    host: str,
    port: int,
    say: Callable[[str], None],
    browse: bool,
    colouring: Colouring,
) -> None:
    """Load the model and serve its page until Ctrl-C or SIGTERM. `colouring` is the page's initial one."""
    with listening(host, port) as bound, TemporaryDirectory(prefix="agop-app-") as name:
        os.environ |= {**_ENVIRONMENT, "GRADIO_TEMP_DIR": name}
        import uvicorn

        from agop.app.page import Page, application

        session = load()
        # Another site could point its own name at this machine, and pass as this page (DNS rebinding).
        hosts = ["localhost", "127.0.0.1", "[::1]", host] if is_local(host) else ["*"]
        app = application(Page(session, Path(name), examples, colouring), hosts)
        # An open page holds a connection: don't wait for it. Gradio prints its own errors.
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none"))
        with suppress(KeyboardInterrupt):  # the command line raises it on SIGTERM, too
            # The socket listens already, so a browser that connects now waits for the server.
            address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
            say(f"the page is at {address} (Ctrl-C ends it)")
            if browse:
                webbrowser.open(address)
            server.run(sockets=[bound])
    if session.busy:  # a running model can't be interrupted, and Python would wait for its thread
        os._exit(0)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket. Raises InputError if the host is unknown or the port taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise InputError(f"unknown host {host!r} ({error}): pass an address of this machine") from error
    with socket.socket(family, kind, protocol) as bound:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
            bound.listen()
        except OSError as error:
            other = port + 1 if 1023 < port < 65535 else 7861
            raise InputError(f"can't use port {port} of {host} ({error.strerror}): try --port {other}") from error
        yield bound
