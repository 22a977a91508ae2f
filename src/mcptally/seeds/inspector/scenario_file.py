"""Reads scenario files, which assign recorded calls to scenarios.

The file is TOML or JSON with a list of entries named `scenario`; the first entry that matches a
call is used:

    [[scenario]]
    scenario = "error_case"          # happy_path, edge_case, boundary or error_case
    server = "git*"                  # label of the server; * and ? as in file names
    tool = "git_commit"              # name of the tool, likewise
    arguments = { repo = "/nope" }   # members that the arguments must have, with these values
    session = "…"                    # exactly; likewise recording and call_id

Omitted fields match any value; an entry must have at least one field.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.errors import near
from mcptally.seeds.inspector.model import SCENARIOS
from mcptally.tables.stages import Validated
from mcptally.toml_files import user_rows
from mcptally.wire.json_text import json_value

_PATTERNS: Final = ("server", "tool")
_EXACT: Final = ("session", "recording", "call_id")


class ScenarioEntry(msgspec.Struct, frozen=True):
    """An entry in a scenario file: the scenario, and conditions for calls."""

    scenario: str
    server: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] = {}
    session: str | None = None
    recording: str | None = None
    call_id: str | None = None

    def __post_init__(self) -> None:
        """Check that the scenario and the texts are valid and that there is a condition."""
        if self.scenario not in SCENARIOS:
            hint = near(self.scenario, SCENARIOS)
            raise ValueError(f"scenario must be one of {', '.join(SCENARIOS)}{hint}")
        texts = [each for name in _PATTERNS + _EXACT if (each := getattr(self, name)) is not None]
        if not texts and not self.arguments:
            raise ValueError(f"name calls with {', '.join((*_PATTERNS, 'arguments', *_EXACT))}")
        if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
            raise ValueError("a name has an unpaired surrogate, which tables cannot store")

    def matched(self, calls: pl.DataFrame) -> pl.Series:
        """Return the scenario for each call that matches the entry, and null for other calls."""
        given = {name: getattr(self, name) for name in _PATTERNS + _EXACT}
        tests = [
            pl.col(name).str.contains(f"^(?s:{_regex(value)})$")
            if name in _PATTERNS
            else pl.col(name) == value
            for name, value in given.items()
            if value is not None
        ]
        holds = pl.all_horizontal(Validated.tool.col.is_not_null(), *tests).fill_null(value=False)
        found = calls.select(holds=holds).to_series()
        wanted = json.loads(json.dumps(self.arguments, default=str))  # TOML values may be dates
        if wanted:
            texts = calls.filter(found).get_column(Validated.arguments.name).drop_nulls().unique()
            having = [text for text in texts if _contains(text, wanted)]
            found = found & calls.get_column(Validated.arguments.name).is_in(having).fill_null(
                value=False
            )
        return pl.select(pl.when(found).then(pl.lit(self.scenario))).to_series()


def _regex(pattern: str) -> str:
    """Convert a file-name pattern to a regular expression."""
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


def _contains(text: str, wanted: dict[str, Any]) -> bool:
    arguments = json_value(text)
    return isinstance(arguments, dict) and all(
        name in arguments and _equal(arguments[name], value) for name, value in wanted.items()
    )


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_equal(v, theirs[k]) for k, v in ours.items())
    # In Python, 1 == True; in JSON, 1 and true differ. In both, 1.0 equals 1.
    return bool(ours == theirs) and isinstance(ours, bool) == isinstance(theirs, bool)


def load_scenarios(path: Path) -> tuple[ScenarioEntry, ...]:
    """Read the entries of a scenario file.

    Raises:
        UsageError: the file cannot be read, or an entry is incomplete or has an unknown field.
    """
    return tuple(user_rows(path, "scenario", ScenarioEntry))
