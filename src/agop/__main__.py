"""`python -m agop` runs the command line."""

from __future__ import annotations

from agop.cli.main import main

main()
