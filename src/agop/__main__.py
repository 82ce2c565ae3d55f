"""`python -m agop` runs the command line."""

from agop.cli.main import main

main()
