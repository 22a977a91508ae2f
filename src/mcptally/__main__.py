"""`python -m mcptally` is the command line."""

from mcptally.cli import run

run()
