"""`python -m mcptally` is the command line."""

from mcptally.cli import main

main()
