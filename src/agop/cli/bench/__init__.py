"""`agop bench`: run a benchmark into a run folder, and check the paper's claims."""

from __future__ import annotations

import typer

from agop.cli.bench.clevr_xai import clevr_xai
from agop.cli.bench.composite import composite
from agop.cli.bench.shortcuts import shortcuts
from agop.cli.bench.xai_tris import xai_tris
from agop.cli.bench.xai_tris_64 import xai_tris_64

app = typer.Typer(help="Run a benchmark.", no_args_is_help=True, rich_markup_mode=None)
for _command in (xai_tris, xai_tris_64, composite, clevr_xai, shortcuts):
    app.command(_command.__name__.replace("_", "-"))(_command)
