"""`agop app` before it serves: its options and errors."""

import socket
import sys

import pytest

from tests.command import error_of, run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--prior", "p.safetensors", "--gray", "--size", "8"),
            "--prior, --size, --gray without a model: pass a model",
        ),
        (("--scale", "shared"), "no scale is named 'shared'"),
        (("--num-classes", "5"), "--num-classes without a model: pass a model"),
        (("--host", "nowhere.invalid", "--port", "0"), "unknown host 'nowhere.invalid'"),
        (("--host", "a" * 70, "--port", "0"), f"unknown host '{'a' * 70}'"),
    ],
)
def test_invalid_options_raise(tmp_path, options, message):
    assert message in error_of("app", *options, folder=tmp_path)


def test_missing_gradio_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert error_of("app", folder=tmp_path) == "error: agop app needs gradio: pip install 'agop[app]'\n"


def test_port_in_use_suggests_another_one(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run("app", "--port", port, folder=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: can't use port {port} of 127.0.0.1 (Address already in use): try --port ")
