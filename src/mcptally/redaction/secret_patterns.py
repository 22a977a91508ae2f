"""Describes secrets that are recognised by a token's prefix or by the text around them.

The rows are in `secrets.toml`; the recorder's redaction and the rule `leak.secret` use them. A
pattern is compiled on first use.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from mcptally.toml_files import read_toml

DEFAULT: Final = frozenset({"default", "strict"})
"""Value of `on` for a rule that finds secrets."""
STRICT: Final = frozenset({"strict"})
"""Value of `on` for a rule that finds other personal or random-looking data."""


class TokenPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is recognised by its prefix."""

    name: str
    """Id of the rule, and the name in `[redacted:NAME]`."""
    title: str
    prefixes: tuple[str, ...]
    """The prefixes, which are part of the token."""
    tail: str
    """Regular expression for the rest of the token; linear, without nested repetition."""
    source: str = "mcptally"
    """The standard that defines the token's form; `mcptally` if there is none."""
    on: frozenset[str] = DEFAULT
    """Base policies that include this rule."""
    silent: tuple[str, ...] = ()
    """Example texts in which the rule must find nothing."""


class SecretPattern(msgspec.Struct, frozen=True, kw_only=True):
    """A secret recognised by the text around it; other fields are as in `TokenPrefix`."""

    name: str
    title: str
    needles: tuple[str, ...]
    """Lower-case texts; every match contains at least one of them. `""` means that every frame is
    searched."""
    pattern: str
    """Regular expression; its group `secret` is replaced."""
    check: str = ""
    """Name of an additional check of the secret, in `token_checks.CHECKS`."""
    source: str = "mcptally"
    on: frozenset[str] = DEFAULT
    fires: tuple[str, ...] = ()
    """Example texts in which the rule must find a secret."""
    silent: tuple[str, ...] = ()


SECRETS: Final = read_toml("redaction/secrets.toml")
"""The file with all rows."""

_R = TypeVar("_R", TokenPrefix, SecretPattern)


def rows_of(
    kind: type[_R],
    rows: Iterable[Mapping[str, Any]],
    parts: Mapping[str, str] = MappingProxyType({}),
) -> tuple[_R, ...]:
    """Return the rows with complete patterns: lists are joined and named parts substituted.

    Args:
        kind: the type of the rows.
        rows: rows of `secrets.toml`.
        parts: further named parts of patterns, in addition to those in the file.
    """
    known = {**parts, **{name: "".join(part) for name, part in SECRETS["parts"].items()}}

    def whole(pattern: Iterable[str]) -> str:
        text = "".join(pattern)
        for name in reversed(known):
            text = text.replace(f"<{name}>", known[name])
        return text

    return tuple(
        msgspec.convert({**row, "pattern": whole(row.get("pattern", ""))}, kind) for row in rows
    )


(ENCODED,) = rows_of(TokenPrefix, [SECRETS["encoded"]])
"""The row whose matches are decoded and then searched for secrets."""

TOKEN_PREFIXES: Final = rows_of(TokenPrefix, SECRETS["token"])

SECRET_PATTERNS: Final = rows_of(SecretPattern, SECRETS["pattern"])
