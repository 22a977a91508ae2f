"""Reads scenario files, which assign recorded calls to scenarios.

The file is TOML or JSON with a list of entries named `scenario`; the first entry that matches a
call counts:

    [[scenario]]
    scenario = "error_case"          # happy_path, edge_case, boundary or error_case
    server = "git*"                  # label of the server; * and ? as in file names
    tool = "git_commit"              # name of the tool, likewise
    arguments = { repo = "/nope" }   # members that the arguments must have, with these values
    session = "…"                    # exactly; likewise recording and call_id

Omitted fields match any value; an entry must have at least one field.
"""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.errors import UsageError, near, reason
from mcptally.seeds.inspector.model import SCENARIOS
from mcptally.tables.stages import Validated
from mcptally.wire.json_text import json_value

_PATTERNS: Final = ("server", "tool")
_EXACT: Final = ("session", "recording", "call_id")
_FIELDS: Final = ("scenario", "arguments", *_PATTERNS, *_EXACT)


class ScenarioEntry(msgspec.Struct, frozen=True):
    """An entry in a scenario file."""

    scenario: str
    like: tuple[tuple[str, str], ...] = ()
    """Pairs of a column and a glob pattern that it must match."""
    exactly: tuple[tuple[str, str], ...] = ()
    arguments: str = "{}"
    """JSON text of the members that the arguments must contain."""

    def matched(self, calls: pl.DataFrame) -> pl.Series:
        """Return the scenario for each call that the entry matches, and null for other calls."""
        tests = [
            pl.col(name).str.contains(f"^(?s:{_regex(pattern)})$") for name, pattern in self.like
        ]
        tests += [pl.col(name) == value for name, value in self.exactly]
        holds = pl.all_horizontal(Validated.tool.col.is_not_null(), *tests).fill_null(value=False)
        found = calls.select(holds=holds).to_series()
        wanted = json.loads(self.arguments)
        if wanted:
            texts = calls.filter(found).get_column(Validated.arguments.name).drop_nulls().unique()
            having = [text for text in texts if _contains(text, wanted)]
            found = found & calls.get_column(Validated.arguments.name).is_in(having).fill_null(
                value=False
            )
        return pl.select(pl.when(found).then(pl.lit(self.scenario))).to_series()


def _regex(pattern: str) -> str:
    """Return the regular expression (Rust syntax) for a file-name pattern."""
    return "".join({"*": ".*", "?": "."}.get(c, _escaped(c)) for c in pattern)


def _escaped(character: str) -> str:
    plain = character.isalnum() or character in "_-/ "
    return character if plain else f"\\x{{{ord(character):x}}}"


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
    # In Python 1 == True, but in JSON they differ; 1.0 equals 1 in both.
    return bool(ours == theirs) and isinstance(ours, bool) == isinstance(theirs, bool)


def load_scenarios(path: Path) -> tuple[ScenarioEntry, ...]:
    """Return the entries in a scenario file.

    Raises:
        UsageError: the file cannot be read, or an entry is incomplete or has an unknown field.
    """
    import tomllib  # noqa: PLC0415  (for a user's file only)

    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        form = "JSON" if path.suffix == ".json" else "TOML"
        raise UsageError(f"{path}: is not {form}: {error}") from error
    entries = table.get("scenario") if isinstance(table, dict) else table
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path}: has no entries; write [[scenario]] tables (or a JSON list)")
    return tuple(
        _entry(entry, f"{path}: entry {number}") for number, entry in enumerate(entries, start=1)
    )


def _entry(entry: Any, where: str) -> ScenarioEntry:
    if not isinstance(entry, dict):
        raise UsageError(
            f"{where}: must be a table with a scenario and the calls that it applies to"
        )
    for name in entry.keys() - set(_FIELDS):
        raise UsageError(f"{where}: unknown field {name!r}{near(name, _FIELDS)}")
    scenario = entry.get("scenario")
    if scenario not in SCENARIOS:
        hint = near(str(scenario), SCENARIOS)
        raise UsageError(f"{where}: scenario must be one of {', '.join(SCENARIOS)}{hint}")
    if len(entry) == 1:
        raise UsageError(f"{where}: name a server, tool, arguments, session, recording or call_id")
    for name in (*_PATTERNS, *_EXACT):
        value = entry.get(name, "")
        if not isinstance(value, str):
            raise UsageError(f"{where}: {name} must be a string")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise UsageError(
                f"{where}: {name} has an unpaired surrogate, which tables cannot store"
            )
    if not isinstance(entry.get("arguments", {}), dict):
        raise UsageError(f"{where}: arguments must be a table of members and values")
    return ScenarioEntry(
        scenario=scenario,
        like=tuple((name, entry[name]) for name in _PATTERNS if name in entry),
        exactly=tuple((name, entry[name]) for name in _EXACT if name in entry),
        arguments=json.dumps(entry.get("arguments", {}), default=str),
    )
