"""Names are printed as they are."""

import io
import os
import sys

import pytest

from agop.cli.printing import plain_console, print_any_name
from tests.command import error_of, run_checked
from tests.image_files import save_random

MODEL = ("agop.networks:CNN8by8", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5", "--all-samples")


def test_emoji_codes_and_brackets_in_a_path_stay(tmp_path, capsys):
    plain_console().print("wrote :cat:/[red]/9 000 px: " + 100 * "x")
    assert capsys.readouterr().out == "wrote :cat:/[red]/9 000 px: " + 100 * "x" + "\n"
    save_random(tmp_path, ":cat:/1.png", "dog/2.png")
    (tmp_path / ":cat:" / "text.png").write_text("text")
    result = run_checked("fit", MODEL[0], ".", *MODEL[1:], "--out", ":cat:.safetensors", folder=tmp_path)
    assert "wrote :cat:.safetensors" in result.stdout
    assert "skipped: :cat:/text.png can't be read" in result.stderr
    assert ":cat: is not a folder" in error_of("fit", MODEL[0], "x/:cat:", folder=tmp_path)


def test_names_that_are_not_utf8_are_printed_as_escapes(tmp_path, monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    name = os.fsdecode(b"\xff.png")
    with pytest.raises(UnicodeEncodeError):
        print(name, flush=True)
    print_any_name()
    plain_console().print(name)
    stdout.flush()
    assert stdout.buffer.getvalue() == b"\\udcff.png\n"


def test_fit_reads_names_that_are_not_utf8(tmp_path):
    save_random(tmp_path, "cat/1.png", "dog/2.png")
    os.rename(tmp_path / "dog", os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert "2 of 2 images" in run_checked("fit", MODEL[0], ".", *MODEL[1:], folder=tmp_path).stdout
