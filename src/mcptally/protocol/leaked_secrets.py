"""Finds credentials in the results of calls.

A scan for a few dozen literal prefixes rules out nearly all texts. The remaining texts are matched
against `redaction/secret_patterns.py`. A finding never contains the credential itself.
"""

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import polars as pl
from ahocorasick_rs import AhoCorasick

from mcptally.redaction.secret_patterns import SECRET_PATTERNS, TOKEN_PREFIXES
from mcptally.rules.findings import concat_findings, make_findings
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Scored

METHODS: Final = ("tools/call", "resources/read", "prompts/get")
"""Methods whose results contain data that a server obtained elsewhere."""

GROUP_SIZE: Final = 48
"""Number of literals in a scan pattern. SIMD searches for up to 64 at once, but a pass may take
twice as long above 50 literals, and four times as long above 64."""

MIN_PREFIX: Final = 4
"""Minimum length of a prefix that is searched for on its own. Shorter prefixes occur in many words,
so `FOLLOWING` must match after them."""

FOLLOWING: Final = r"[A-Za-z0-9_\-]{16}"
"""Matches the characters that must follow a short prefix such as `sk-` or `hf_` (Rust regex)."""

EXTRA_PREFIXES: Final = ("AKIA", "ASIA", "eyJhbGciOi", "eyJ0eXAiOi", "eyJraWQiOi", "AIzaSy")
"""Longer prefixes, for tokens whose short prefix may occur anywhere in base64."""

SHAPE_PREFIXES: Final[dict[str, tuple[str, ...]]] = {
    "private-key": ("-----BEGIN ",),
    "webhook-url": ("https://hooks.slack.com/", "https://discord.com/api/", "https://discordapp."),
    "url-password": ("://",),
}
"""Maps names of patterns in `SECRET_PATTERNS` to prefixes with which their matches begin."""

WITH_PASSWORD: Final = r"://[^\s/?#@:\"'\\<>]*:[^\s/?#\"'\\<>\[\]{}]+@[A-Za-z\[_0-9]"  # noqa: S105
"""Matches a URL with a password (Rust regex); `://` alone occurs in nearly every text.

The lengths are not limited: compiling bounded repetitions takes fifteen times as long."""

PLACEHOLDER: Final = re.compile(
    r"(?i)example|x{4}|\*{3}|\.{3}|your|placeholder|changeme|dummy|sample|redacted|<|\$\{|\{\{"
)
PLACEHOLDER_WORDS: Final = frozenset(
    {"password", "pass", "passwd", "pwd", "secret", "token", "user", "pw"}
)
"""Words that documentation uses in place of a password."""


def find_leaked_secrets(calls: pl.DataFrame) -> pl.DataFrame:
    """Return findings (`leak.secret`) about credentials in results.

    A credential that also occurs in the arguments belongs to the caller and is not reported.

    Args:
        calls: rows with `dir`, `method`, `arguments`, `response` and the columns of findings.
    """
    reads = (Scored.dir.col == "c2s") & Scored.method.col.is_in(METHODS)
    response = Scored.response.col
    texts = calls.lazy().select(response.filter(reads)).unique().pipe(run_query).lazy()
    suspects = (
        pl.concat(
            texts.filter(response.str.contains(mark, literal=True)).filter(
                response.str.contains(pattern)
            )
            for mark, pattern in _scan_patterns()
        )
        .unique()
        .pipe(run_query)
        .get_column(Scored.response.name)
    )
    found = [(text, *secret) for text in suspects for secret in secrets(text)]
    if not found:
        return concat_findings([])
    names = ("response", "kind", "value")
    by_response = pl.DataFrame(found, schema=dict.fromkeys(names, pl.String), orient="row")
    leaks = (
        calls.filter(reads, Scored.response.col.is_in(suspects.implode()))
        .join(by_response, on="response", maintain_order="left")
        .filter(~Scored.arguments.col.fill_null("").str.contains(pl.col("value"), literal=True))
    )
    return make_findings(
        "leak.secret",
        leaks,
        formatted("{}, {} characters", "kind", pl.col("value").str.len_chars()),
        path="/result",
    )


@functools.cache
def _scan_patterns() -> tuple[tuple[str, str], ...]:
    """Return pairs of a literal and a pattern (Rust regex) that find texts with credentials.

    A text that matches none of the patterns contains no credential. All matches of a pattern
    contain its literal, because searching for the literal is faster.
    """
    prefixes = [prefix for row in TOKEN_PREFIXES for prefix in row.prefixes]
    short = tuple(p for p in prefixes if len(p) == MIN_PREFIX - 1 and not p.isalnum())
    literals = [prefix for prefix in prefixes if len(prefix) >= MIN_PREFIX]
    shapes = (*SHAPE_PREFIXES["private-key"], *SHAPE_PREFIXES["webhook-url"])
    left = {*literals, *EXTRA_PREFIXES, *shapes}
    scans = []
    for mark in ("_", "-", ""):
        marked = sorted(literal for literal in left if mark in literal)
        left.difference_update(marked)
        groups = [marked[start : start + GROUP_SIZE] for start in range(0, len(marked), GROUP_SIZE)]
        scans += [(mark, _any(group)) for group in groups]
    return (*scans, ("", f"(?:{_any(short)}){FOLLOWING}|{WITH_PASSWORD}"))


class _Credential(NamedTuple):
    """A kind of credential, and how to recognise it."""

    title: str
    prefixes: tuple[str, ...]
    """Prefixes of the credential, one of which begins every match. One automaton searches for the
    prefixes of all kinds."""
    pattern: re.Pattern[str]
    """Matches from the prefix on; the group `secret` is the credential."""


@functools.cache
def _credentials() -> tuple[_Credential, ...]:
    """Return all kinds of credentials."""
    prefixed = [
        _Credential(
            row.title,
            row.prefixes,
            re.compile(rf"(?<![A-Za-z0-9_\-])(?P<secret>(?:{_any(row.prefixes)}){row.tail})"),
        )
        for row in TOKEN_PREFIXES
    ]
    shaped = [
        _Credential(row.title, SHAPE_PREFIXES[row.name], re.compile(row.pattern))
        for row in SECRET_PATTERNS
        if row.name in SHAPE_PREFIXES
    ]
    return (*prefixed, *shaped)


@functools.cache
def _prefix_automaton() -> tuple[AhoCorasick, list[int]]:
    """Return an automaton that finds all prefixes, and the index of each prefix's kind.

    The indexes refer to `_credentials`.
    """
    owned = [(prefix, i) for i, kind in enumerate(_credentials()) for prefix in kind.prefixes]
    return AhoCorasick([prefix for prefix, _ in owned]), [owner for _, owner in owned]


def _any(texts: Iterable[str]) -> str:
    """Return a regular expression that matches any of the strings literally."""
    return "|".join(map(re.escape, texts))


def secrets(text: str) -> list[tuple[str, str]]:
    """Return the kind (a rule's title) and the value of each distinct credential in a JSON text."""
    kinds: dict[str, str] = {}
    automaton, owners = _prefix_automaton()
    matches = automaton.find_matches_as_indexes(text, overlapping=True)
    for owner, at in sorted((owners[number], at) for number, at, _ in matches):
        credential = _credentials()[owner]
        match = credential.pattern.match(text, at)
        if match and not _is_placeholder(match["secret"]):
            kinds.setdefault(match["secret"], credential.title)
    return [(title, value) for value, title in kinds.items()]


def _is_placeholder(value: str) -> bool:
    """Return whether a value only stands for a credential, as in documentation or a template."""
    return (
        PLACEHOLDER.search(value) is not None
        or len(set(value)) < 5
        or value.lower() in PLACEHOLDER_WORDS
        or value.lower().removesuffix("123") in PLACEHOLDER_WORDS
    )
