"""`python -m agop` is `agop`."""

from agop.cli import main

main()
