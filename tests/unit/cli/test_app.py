"""`agop app` before it serves: its options and errors."""

import socket
import sys

import pytest

from agop.app import example
from tests.command import run


def test_options_without_a_model_raise(tmp_path):
    result = run("app", "--prior", example.PRIOR, "--gray", "--size", "8", folder=tmp_path)
    assert result.returncode == 2
    assert "--prior, --size, --gray without a model: pass a model" in result.stderr


def test_missing_gradio_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    result = run("app", folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "error: agop app needs gradio: pip install 'agop[app]'\n"


def test_port_in_use_suggests_another_one(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run("app", "--port", port, folder=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(
        f"error: can't use port {port} of 127.0.0.1 (Address already in use): try --port "
    )  # fmt: skip


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 70])
def test_unknown_host_raises(tmp_path, host):
    result = run("app", "--host", host, "--port", "0", folder=tmp_path)
    assert result.returncode == 2
    assert f"unknown host '{host}'" in result.stderr
