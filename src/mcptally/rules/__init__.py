"""Rules are rows: this package holds them as TOML, and reads them.

A rule file is a list of `[[rule]]` tables. Every rule has an id (`group.name`, never reused,
because old reports quote it), a title, a source (a spec section with revision, a seed document,
or "mcptally"), and examples that must fire and examples that must stay silent; what else a row
says is up to the module that reads the file, which declares it as a subclass of `Rule`.
"""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, TypeVar

import msgspec

from mcptally.errors import RuleError, near


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """What every rule row says; subclasses add the condition."""

    id: str
    """`group.name`, or `group.section.name`; never used again for another rule."""
    title: str
    """What it says, in a few words, without a full stop."""
    source: str
    """A section of a specification with its revision, a seed document, or "mcptally"."""
    fires: tuple[Any, ...] = ()
    """Examples that must fire. Text rules hold strings, others what their module says."""
    silent: tuple[Any, ...] = ()
    """Examples that must stay silent."""
    note: str = ""
    """What else a reader should know, in sentences."""


R = TypeVar("R", bound=Rule)


def load(cls: type[R], *names: str) -> tuple[R, ...]:
    """The rules of the TOML files `names` of this package, in order of files and rows.

    Raises:
        RuleError: a row is not as `cls` says (`parse`), or an id is used twice.
    """
    rows: list[R] = []
    for name in names:
        text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
        rows += parse(cls, tomllib.loads(text), where=name)
    _check_unique(rows)
    return tuple(rows)


def parse(cls: type[R], table: Mapping[str, Any], *, where: str) -> list[R]:
    """Rule rows of one parsed TOML file; `where` names it in errors.

    Raises:
        RuleError: a row lacks a field, has an unknown one, one of another type or with a value that
            its class refuses, or no examples.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    rows = []
    for number, row in enumerate(table.get("rule", ()), start=1):
        name = row.get("id", f"number {number}")
        for key in row.keys() - fields.keys():
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
                f"{where}: rule {name}: needs an example that fires and one that stays silent "
                "(fields 'fires' and 'silent')"
            )
        rows.append(rule)
    return rows


def _check_unique(rows: Iterable[Rule]) -> None:
    seen: set[str] = set()
    for rule in rows:
        if rule.id in seen:
            raise RuleError(f"rule id {rule.id} is used twice; an id is never reused")
        seen.add(rule.id)
