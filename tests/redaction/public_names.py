"""Names of settings and arguments that other people chose, with their values.

The names come from public files, which `public_names.json` cites; no file is copied. Values of
secrets are made up when the corpus runs; the values of plain names are those of the files or of
their documentation.
"""

import json
from pathlib import Path
from typing import Final, NamedTuple


class Source(NamedTuple):
    """A public file: names of secrets, and names of plain values with an example."""

    kind: str
    """`application`, `MCP server` or `MCP tool`."""
    secrets: str
    plain: dict[str, str]


_DATA: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

USED: Final = {name: Source(**each) for name, each in _DATA["used"].items()}
"""Sources that were read before the rules were written."""
KEPT: Final = {name: Source(**each) for name, each in _DATA["kept"].items()}
"""Sources that were read afterwards, and did not change the rules."""
COMMANDS: Final[list[str]] = _DATA["commands"]
"""Commands from manuals and from gitleaks' tests; `{}` is the secret."""
HARMLESS_LINES: Final[list[str]] = _DATA["harmless_lines"]
"""Lines that gitleaks, betterleaks and detect-secrets list as false positives."""
