"""Runs the command line, as `mcptally` or `python -m mcptally`.

It catches Ctrl-C while the command line's modules are imported.
"""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from mcptally.cli import main as run  # noqa: PLC0415 - see above

        run()
    except KeyboardInterrupt:
        sys.stderr.write("mcptally: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
