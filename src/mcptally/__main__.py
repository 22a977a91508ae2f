"""Lets users start the command line with `python -m mcptally`."""

from mcptally.cli import main

main()
