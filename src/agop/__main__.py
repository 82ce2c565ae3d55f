"""`python -m agop` is `agop`."""

from agop.cli.main import main

main()
