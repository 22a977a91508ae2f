"""What results give away: credentials in the text of replies.

A scan for a few dozen literal beginnings leaves nearly nothing over; only that is looked at by the
exact patterns of `secret_shapes.py`. The secret itself is never repeated in a finding.
"""

import functools
import re
from typing import Final

import polars as pl

from mcptally.judge import found
from mcptally.secret_shapes import PREFIXES, SHAPES

ASKED: Final = ("tools/call", "resources/read", "prompts/get")
"""Methods whose results hold what a server read somewhere."""

GROUP: Final = 32
"""Literals in one pattern: about 40 are searched at once by SIMD, more cost six times that."""

SHORTEST: Final = 4
"""A beginning shorter than this is no reason to look closer: every word would be one."""

LONGER: Final = ("AKIA", "ASIA", "sk-proj-", "sk-svcacct-", "eyJhbGciOi")
"""Longer beginnings of tokens whose prefix is too short to search for."""

TEXTUAL: Final = {
    "private-key": "-----BEGIN ",
    "webhook-url": "hook",
    "url-password": r"://[^\s/?#@:\"'\\<>]{0,100}:[^\s/?#\"'\\<>\[\]{}]{1,200}@[A-Za-z\[_0-9]",
}
"""Shapes that are looked for, and a pattern (Rust regex) without which there is none."""

PLACEHOLDER: Final = re.compile(
    r"(?i)example|x{4}|\*{3}|\.{3}|your|placeholder|changeme|dummy|sample|redacted|<|\$\{|\{\{"
)
USUAL: Final = frozenset({"password", "pass", "passwd", "pwd", "secret", "token", "user", "pw"})
"""Words that stand for a password in documentation."""


def find(calls: pl.DataFrame) -> pl.DataFrame:
    """Findings about credentials in results."""
    rows = calls.filter(
        pl.col("dir") == "c2s", pl.col("method").is_in(ASKED), pl.col("response").is_not_null()
    )
    texts = rows.select("response").unique()
    suspects = texts.filter(
        pl.any_horizontal(pl.col("response").str.contains(pattern) for pattern in _scans())
    )
    shown = [
        (text, *secret) for text in suspects.get_column("response") for secret in secrets(text)
    ]
    names = ("response", "kind", "value")
    secrets_ = pl.DataFrame(shown, schema=dict.fromkeys(names, pl.String), orient="row")
    leaks = rows.join(secrets_, on="response", maintain_order="left").filter(
        ~pl.col("arguments").fill_null("").str.contains(pl.col("value"), literal=True)
    )
    return found(
        "leak.secret",
        leaks,
        pl.format("{}, {} characters", "kind", pl.col("value").str.len_chars()),
        path="/result",
    )


@functools.cache
def _scans() -> tuple[str, ...]:
    """Patterns (Rust regex), one of which every suspect text matches."""
    literals = [p for row in PREFIXES for p in row.prefixes if len(p) >= SHORTEST]
    literals = sorted({*literals, *LONGER, TEXTUAL["private-key"], "hooks.", "webhook"})
    groups = [literals[start : start + GROUP] for start in range(0, len(literals), GROUP)]
    patterns = ["|".join(map(re.escape, group)) for group in groups]
    return (*patterns, TEXTUAL["url-password"])


@functools.cache
def _shapes() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Title and exact pattern of what counts; the group `secret` is the credential."""
    prefixed = [
        (
            row.title,
            re.compile(
                rf"(?<![A-Za-z0-9_\-])(?P<secret>(?:{'|'.join(map(re.escape, row.prefixes))})"
                rf"{row.tail})"
            ),
        )
        for row in PREFIXES
    ]
    textual = [(row.title, re.compile(row.pattern)) for row in SHAPES if row.name in TEXTUAL]
    return (*prefixed, *textual)


def secrets(text: str) -> list[tuple[str, str]]:
    """Kind and value of every credential in a reply's JSON text."""
    known: dict[str, str] = {}
    for title, pattern in _shapes():
        for match in pattern.finditer(text):
            value = match["secret"]
            if not _harmless(value):
                known.setdefault(value, title)
    return [(title, value) for value, title in known.items()]


def _harmless(value: str) -> bool:
    """A placeholder, or what documentation has in place of a credential."""
    return (
        PLACEHOLDER.search(value) is not None
        or len(set(value)) < 5
        or value.lower() in USUAL
        or value.lower().removesuffix("123") in USUAL
    )
