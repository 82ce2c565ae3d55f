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
