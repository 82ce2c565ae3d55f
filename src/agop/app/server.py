"""The server of the page: on this machine alone unless told otherwise, without analytics, leaving nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from agop.app.fields import Fields
from agop.app.guard import Guard, is_local
from agop.app.page import STYLE, Page
from agop.app.session import Loaded, Session
from agop.app.uploads import MOST_SENT_BYTES
from agop.errors import InputError

# Read by Gradio, and by the libraries of models, when they are imported.
_SILENT = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_RUN_HISTORY": "False", "HF_HUB_OFFLINE": "1",
           "HF_HUB_DISABLE_TELEMETRY": "1"}  # fmt: skip


def serve(
    load: Callable[[Fields], Loaded], fields: Fields, host: str, port: int, say: Callable[[str], None], browse: bool
) -> None:
    """Serve the page until Ctrl-C. Other machines, if they can reach it, cannot change its model."""
    with listening(host, port) as place, TemporaryDirectory(prefix="agop-app-") as name:
        os.environ |= {**_SILENT, "GRADIO_TEMP_DIR": name}
        session = Session(load, fields)
        page = Page(session, Path(name), fixed=not is_local(host))
        address = f"http://{f'[{host}]' if ':' in host else host}:{place.getsockname()[1]}"

        def ready() -> None:
            say(f"the page is at {address} (Ctrl-C ends it)")
            if browse:
                webbrowser.open(address)

        server = _server(guarded(page, host), ready, session.stopping.set)
        with _ended_by_signals(session):
            server.run(sockets=[place])
    if session.busy:  # a model at work cannot be interrupted, and Python would wait for it
        os._exit(0)


def guarded(page: Page, host: str) -> Guard:
    """The page as an application, behind its guard."""
    import gradio
    from fastapi import FastAPI

    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    theme.set(block_info_text_color="*neutral_500", block_info_text_color_dark="*neutral_400")
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app = gradio.mount_gradio_app(
        outer, page.blocks(), path="/", footer_links=[], run_history=False, max_file_size=MOST_SENT_BYTES,
        ssr_mode=False, enable_monitoring=False, pwa=False, mcp_server=False, theme=theme, css=STYLE,
    )  # fmt: skip
    return Guard(app, host, page.folder)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the place, or a plain error."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise InputError(f"host {host!r} is not known ({error}): give an address of this machine") from error
    with socket.socket(family, kind, protocol) as bound:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(place)
            bound.listen()
        except OSError as error:
            other = f"--port {port + 1 if 1023 < port < 65535 else 7861}"
            raise InputError(
                f"{host} port {port} cannot be used ({error.strerror}): give another one, for example {other}"
            ) from error
        yield bound


def _server(app: Guard, ready: Callable[[], None], stop: Callable[[], None]) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            stop()
            await super().shutdown(sockets)

    # A page that is open holds a connection, which is not waited for. Gradio itself tells what goes wrong in it.
    return Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none"))


@contextmanager
def _ended_by_signals(session: Session) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block, so that what follows it is still done."""

    def end(number: int, _: FrameType | None) -> None:
        session.stopping.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
