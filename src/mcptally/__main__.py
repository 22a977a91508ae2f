"""Runs the command line as `python -m mcptally`."""

from mcptally.cli import main

main()
