"""`agop report`."""

import subprocess
import sys

from agop.report.formats import registry
from agop.report.run import Run
from tests.command import error_of, run, run_checked
from tests.report_runs import write_xai_tris

EVERY_FORMAT = """
import sys
from agop.cli.main import cli
for name in ("html", "markdown", "csv", "latex", "json"):
    cli(["report", "run", "--format", name, "--out", name], standalone_mode=False)
assert "torch" not in sys.modules
"""


def test_no_format_needs_torch(tmp_path):
    (tmp_path / "run").mkdir()
    write_xai_tris(tmp_path / "run", seeds=1)
    subprocess.run([sys.executable, "-c", EVERY_FORMAT], check=True, cwd=tmp_path)
    for name in ("html", "markdown", "csv", "latex", "json"):
        assert (tmp_path / name).read_text() == registry.get(name)(Run(tmp_path / "run"))


def test_the_format_follows_the_extension_and_defaults_to_html(tmp_path):
    report = write_xai_tris(tmp_path, seeds=1)
    assert run("report", tmp_path, folder=tmp_path).stdout == f"wrote {tmp_path / 'index.html'}\n"
    page = (tmp_path / "index.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert run("report", tmp_path, "--format", "csv", folder=tmp_path).stdout == registry.get("csv")(report)
    for extension, name in (("md", "markdown"), ("tex", "latex"), ("json", "json")):
        run_checked("report", tmp_path, "--out", f"it.{extension}", folder=tmp_path)
        assert (tmp_path / f"it.{extension}").read_text() == registry.get(name)(report)
    run_checked("report", tmp_path, "--out", "it.HTM", folder=tmp_path)
    assert (tmp_path / "it.HTM").read_text() == page
    assert "it.docx doesn't end in .html" in error_of("report", tmp_path, "--out", "it.docx", folder=tmp_path)


def test_reports_replace_earlier_ones_but_neither_the_run_nor_other_files(tmp_path):
    write_xai_tris(tmp_path / "run", seeds=1)
    for out in ((), ("--out", "it.md"), ("--out", "it.tex"), ("--out", "it.csv"), ("--out", "run/it.json")):
        first, second = (run_checked("report", "run", *out, folder=tmp_path).stdout for _ in range(2))
        assert first == second
    spec = (tmp_path / "run" / "spec.json").read_bytes()
    for force in ((), ("--force",)):
        message = error_of("report", "run", "--out", "run/spec.json", *force, folder=tmp_path)
        assert "run/spec.json is one of the inputs" in message
    assert (tmp_path / "run" / "spec.json").read_bytes() == spec
    (tmp_path / "mine.html").write_text("<!DOCTYPE html>\n<html lang='en'>mine")
    assert "mine.html already exists" in error_of("report", "run", "--out", "mine.html", folder=tmp_path)
    assert "mine" in (tmp_path / "mine.html").read_text()
    run_checked("report", "run", "--out", "mine.html", "--force", folder=tmp_path)
    assert (tmp_path / "mine.html").read_bytes() == (tmp_path / "run" / "index.html").read_bytes()
