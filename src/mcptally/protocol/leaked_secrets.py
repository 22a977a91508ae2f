"""What results give away: credentials in the text of replies.

A scan for a few dozen literal beginnings leaves nearly nothing over; only that is looked at by the
exact patterns of `secret_shapes.py`. The secret itself is never repeated in a finding.
"""

import functools
import re
from typing import Final, NamedTuple

import polars as pl
from ahocorasick_rs import AhoCorasick

from mcptally.redaction.secret_patterns import PREFIXES, SHAPES
from mcptally.rules.findings import findings_of, together
from mcptally.tables.formatting import formatted

ASKED: Final = ("tools/call", "resources/read", "prompts/get")
"""Methods whose results hold what a server read somewhere."""

GROUP: Final = 60
"""Literals in one pattern: up to 64 are searched at once by SIMD, more cost four times that."""

SHORTEST: Final = 4
"""A beginning shorter than this is no reason to look closer: every word would be one."""

FOLLOWED: Final = r"[A-Za-z0-9_\-]{16}"
"""What makes a reason of a shorter one with a sign in it, such as `sk-` and `hf_` (Rust regex)."""

LONGER: Final = ("AKIA", "ASIA", "eyJhbGciOi", "eyJ0eXAiOi", "eyJraWQiOi", "AIzaSy")
"""Longer beginnings of tokens whose prefix could stand anywhere in base64."""

TEXTUAL: Final[dict[str, tuple[str, ...]]] = {
    "private-key": ("-----BEGIN ",),
    "webhook-url": ("https://hooks.slack.com/", "https://discord.com/api/", "https://discordapp."),
    "url-password": ("://",),
}
"""Shapes that are looked for, and what each match begins with."""

WITH_PASSWORD: Final = r"://[^\s/?#@:\"'\\<>]{0,100}:[^\s/?#\"'\\<>\[\]{}]{1,200}@[A-Za-z\[_0-9]"  # noqa: S105
"""Texts without a match (Rust regex) have no password in a URL: `://` alone is in nearly all."""

PLACEHOLDER: Final = re.compile(
    r"(?i)example|x{4}|\*{3}|\.{3}|your|placeholder|changeme|dummy|sample|redacted|<|\$\{|\{\{"
)
USUAL: Final = frozenset({"password", "pass", "passwd", "pwd", "secret", "token", "user", "pw"})
"""Words that stand for a password in documentation."""


def find(calls: pl.DataFrame) -> pl.DataFrame:
    """Findings (`leak.secret`) about credentials in results.

    Args:
        calls: rows with `dir`, `method`, `arguments` and `response`. A secret that the arguments
            hold was the caller's own.
    """
    asked = (pl.col("dir") == "c2s") & pl.col("method").is_in(ASKED)
    texts = calls.select(pl.col("response").filter(asked)).drop_nulls().unique()
    suspects = texts.filter(
        pl.any_horizontal(pl.col("response").str.contains(pattern) for pattern in _scans())
    ).get_column("response")
    shown = [(text, *secret) for text in suspects for secret in secrets(text)]
    if not shown:
        return together([])
    names = ("response", "kind", "value")
    known = pl.DataFrame(shown, schema=dict.fromkeys(names, pl.String), orient="row")
    leaks = (
        calls.filter(asked, pl.col("response").is_in(suspects.implode()))
        .join(known, on="response", maintain_order="left")
        .filter(~pl.col("arguments").fill_null("").str.contains(pl.col("value"), literal=True))
    )
    return findings_of(
        "leak.secret",
        leaks,
        formatted("{}, {} characters", "kind", pl.col("value").str.len_chars()),
        path="/result",
    )


@functools.cache
def _scans() -> tuple[str, ...]:
    """Patterns (Rust regex), one of which every suspect text matches."""
    begins = [begin for row in PREFIXES for begin in row.prefixes]
    short = tuple(b for b in begins if len(b) == SHORTEST - 1 and not b.isalnum())
    literals = [begin for begin in begins if len(begin) >= SHORTEST]
    literals = sorted({*literals, *LONGER, *TEXTUAL["private-key"], *TEXTUAL["webhook-url"]})
    groups = [literals[start : start + GROUP] for start in range(0, len(literals), GROUP)]
    patterns = ["|".join(map(re.escape, group)) for group in groups]
    return (*patterns, f"(?:{_any(short)}){FOLLOWED}", WITH_PASSWORD)


class _Look(NamedTuple):
    title: str
    begins: tuple[str, ...]
    """Every match begins with one of these: found by one automaton, which `re` has not."""
    pattern: re.Pattern[str]
    """What follows; the group `secret` is the credential."""


@functools.cache
def _looks() -> tuple[_Look, ...]:
    """What counts as a credential, exactly."""
    prefixed = [
        _Look(
            row.title,
            row.prefixes,
            re.compile(rf"(?<![A-Za-z0-9_\-])(?P<secret>(?:{_any(row.prefixes)}){row.tail})"),
        )
        for row in PREFIXES
    ]
    textual = [
        _Look(row.title, TEXTUAL[row.name], re.compile(row.pattern))
        for row in SHAPES
        if row.name in TEXTUAL
    ]
    return (*prefixed, *textual)


@functools.cache
def _beginnings() -> tuple[AhoCorasick, list[int]]:
    """What finds all beginnings in one pass, and of which look each is."""
    owned = [(begin, i) for i, look in enumerate(_looks()) for begin in look.begins]
    return AhoCorasick([begin for begin, _ in owned]), [owner for _, owner in owned]


def _any(texts: tuple[str, ...]) -> str:
    return "|".join(map(re.escape, texts))


def secrets(text: str) -> list[tuple[str, str]]:
    """Kind (a row's title) and value of each credential in a reply's JSON text, values once."""
    known: dict[str, str] = {}
    automaton, owners = _beginnings()
    places = automaton.find_matches_as_indexes(text, overlapping=True)
    for owner, at in sorted((owners[number], at) for number, at, _ in places):
        look = _looks()[owner]
        match = look.pattern.match(text, at)
        if match and not _harmless(match["secret"]):
            known.setdefault(match["secret"], look.title)
    return [(title, value) for value, title in known.items()]


def _harmless(value: str) -> bool:
    """A placeholder, or what documentation has in place of a credential."""
    return (
        PLACEHOLDER.search(value) is not None
        or len(set(value)) < 5
        or value.lower() in USUAL
        or value.lower().removesuffix("123") in USUAL
    )
