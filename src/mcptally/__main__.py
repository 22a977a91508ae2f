"""Runs the command line when started with `python -m mcptally`."""

from mcptally.cli import main

main()
