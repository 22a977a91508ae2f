"""Owns the rule files (TOML): reads and lists their rules, and makes findings from them.

May import `tables`, `redaction`, `toml_files` and `errors`. A rule file is a list of `[[rule]]`
tables. Every rule has an id (`group.name`; never reused, because old reports quote it), a title, a
source (a section of a specification with its revision, a seed document, or "mcptally"), examples
that it must match and examples that it must not match. The module that reads a file declares the
other fields as a subclass of `Rule`. `measured.json` contains measured counts per rule, written by
`python -m tests.benchmarks.calibrate`.
"""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from mcptally.errors import RuleError, near
from mcptally.toml_files import read_toml


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every rule has; subclasses add the fields for its condition."""

    id: str
    """`group.name` or `group.section.name`; never reused for another rule."""
    title: str
    """What the rule finds, in a few words, without a full stop."""
    source: str
    """A section of a specification with its revision, a seed document, or "mcptally"."""
    fires: tuple[Any, ...] = ()
    """Examples that the rule must match: strings for a rule about text. Other classes of rules
    describe their own examples."""
    silent: tuple[Any, ...] = ()
    """Examples that the rule must not match."""
    note: str = ""
    """Further explanation, in sentences."""


R = TypeVar("R", bound=Rule)

_FOLDER: Final = Path(__file__).parent


def load(cls: type[R], *names: str) -> tuple[R, ...]:
    """Load the rules in TOML files of this package, in the order of files and rows.

    Raises:
        RuleError: a row is invalid (`parse`), or two rows have the same id.
    """
    rows: list[R] = []
    for name in names:
        rows += parse(cls, read_toml(f"rules/{name}"), where=name)
    _check_unique(rows)
    return tuple(rows)


@functools.cache
def measured() -> Mapping[str, Mapping[str, float]]:
    """Map rule ids to `hits` (decided labelled calls) and `right` (correct decisions)."""
    text = (_FOLDER / "measured.json").read_bytes()
    counts: dict[str, dict[str, float]] = msgspec.json.decode(text)
    return counts


def parse(cls: type[R], table: Mapping[str, Any], *, where: str) -> list[R]:
    """Convert a parsed TOML file to rules.

    Args:
        cls: the class of the rules.
        table: the parsed file.
        where: the file's name, for error messages.

    Raises:
        RuleError: a row lacks a field or examples, or has an unknown field or an invalid value.
    """
    fields = cls.__struct_fields__
    rows = []
    for number, row in enumerate(table.get("rule", ()), start=1):
        name = row.get("id", f"number {number}")
        for key in row.keys() - set(fields):
            hint = near(key, fields)
            raise RuleError(f"{where}: rule {name}: unknown field {key!r}{hint}")
        try:
            rule = msgspec.convert(row, cls)
        except msgspec.ValidationError as error:
            raise RuleError(f"{where}: rule {name}: {error}") from error
        except RuleError as error:
            raise RuleError(f"{where}: {error}") from error
        if not rule.fires or not rule.silent:
            raise RuleError(
                f"{where}: rule {name}: needs at least one example in 'fires' and one in 'silent'"
            )
        rows.append(rule)
    return rows


def _check_unique(rows: Iterable[Rule]) -> None:
    seen: set[str] = set()
    for rule in rows:
        if rule.id in seen:
            raise RuleError(f"two rules have the id {rule.id}; give one of them a new id")
        seen.add(rule.id)
