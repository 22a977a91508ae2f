"""Redaction of the recorded copy: finds secrets in bytes and puts a name in their place.

The engine knows quoting, not documents: a value begins after its quote and ends at the next quote
with as many backslashes before it, so the same search works in JSON, in JSON inside a string
inside JSON, in a torn frame and in plain text. What it looks for are the rows of
`redaction_rules.py`. An ordinary frame is dismissed by two scans and returned as it is; only what
is replaced differs from the wire. What is and is not caught: docs/explanation/redaction.md.

Replaced is `[redacted:NAME]`, hashed is `[hashed:NAME:16 hex digits]` (SHA-256 of the value, so
that two sights of one session id or `requestState` still pair). Neither is redacted again.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mcptally.errors import UsageError, near
from mcptally.redaction.key_matching import NAME_HINTS, named_spans, secret_name, session_spans
from mcptally.redaction.key_patterns import PLACES, PREFIXES, SHAPES, Place, Prefix, Shape, words
from mcptally.redaction.scanner import MOST_TRIES, Hit, Texts, matches_near
from mcptally.redaction.spans import (
    URL_PASSWORD,
    Span,
    done,
    hashed,
    replace,
    unescape,
    within_strings,
)
from mcptally.redaction.token_checks import CHECKS, REACH

BASES: Final = ("default", "strict", "none")
"""What a policy begins with."""

RULES: Final[dict[str, Prefix | Shape | Place]] = {
    row.name: row for rows in (PLACES, SHAPES, PREFIXES) for row in rows
}
"""Every rule by its name."""

# --- policies ---------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def policy(text: str = "default") -> "Policy":
    """The policy that a text like `default,+emails,-jwt` stands for.

    The first word is `default`, `strict` (everything there is) or `none`; the others switch one
    rule on (`+`) or off (`-`). `mcptally.redaction.policy.RULES` has the names.

    Raises:
        UsageError: a word that is no policy and no rule.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()] or ["default"]
    base = "default" if parts[0][0] in "+-" else parts.pop(0)
    if base not in BASES:
        raise UsageError(
            f"no redaction policy is called {base!r}; there are {', '.join(BASES)}, and rules are "
            f"switched as in default,+emails,-jwt{near(base, BASES)}"
        )
    on = {name for name, row in RULES.items() if base in row.on}
    for word in parts:
        name = word[1:]
        if word[0] not in "+-" or name not in RULES:
            raise UsageError(
                f"no redaction rule is called {word!r}: write +name or -name with one of "
                f"{', '.join(sorted(RULES))}{near(word.lstrip('+-'), RULES)}"
            )
        (on.add if word[0] == "+" else on.discard)(name)
    usual = {name for name, row in RULES.items() if base in row.on}
    switched = sorted(f"+{n}" for n in on - usual) + sorted(f"-{n}" for n in usual - on)
    return Policy(",".join([base, *switched]), frozenset(on))


class Policy:
    """What is hidden in a recorded copy; made by `policy`."""

    def __init__(self, name: str, rules: frozenset[str]) -> None:
        self.name: Final = name
        """The text for `open.redaction`."""
        self.rules: Final = rules
        """Names of the rules that are on."""
        self._by_prefix = {p: row for row in PREFIXES if row.name in rules for p in row.prefixes}
        self._shapes = [row for row in SHAPES if row.name in rules]
        self._always = [n for n, row in enumerate(self._shapes) if "" in row.needles]
        self._places = frozenset(row.name for row in PLACES if row.name in rules)

    def __repr__(self) -> str:
        return f"policy({self.name!r})"

    def json(self, frame: bytes) -> tuple[bytes, int]:
        """Strict JSON with its secrets replaced, and how many were.

        Only strings change: number forms, key order, duplicate keys and whitespace stay. The same
        object comes back when there is nothing to hide.
        """
        if (spans := self._found(frame)) is None:
            return b'"%b"' % UNSEARCHABLE, 1
        if not spans:
            return frame, 0
        clean, count = replace(frame, spans)
        if count and not _is_json(clean) and _is_json(frame):
            # A quote that ends a string was taken for one that begins a value, or a number is
            # a card's.
            clean, count = replace(frame, within_strings(frame, spans))
        return clean, count

    def text(self, data: bytes) -> tuple[bytes, int]:
        """Any other bytes (a torn frame, stderr, a path, a URL), likewise."""
        return self._apply(data)

    def argv(self, command: Sequence[str]) -> tuple[list[str], int]:
        """A command line, likewise; `--token X` is known also where X is a word of its own."""
        clean: list[str] = []
        total = 0
        flag: str | None = None
        for word in command:
            data = word.encode(errors="surrogateescape")
            named = flag and word and not word.startswith("-") and not done(data)
            if named and "assignments" in self.rules:
                new, count = f"[redacted:{flag}]".encode(), 1
            else:
                new, count = self._apply(data)
            clean.append(new.decode(errors="surrogateescape"))
            total += count
            flag = secret_name(word.encode(errors="replace")) if word.startswith("--") else None
        return clean, total

    def url(self, url: str) -> tuple[str, int]:
        """A URL or path with query: as `text`, and session ids are hashed whatever the policy."""
        data = url.encode(errors="surrogateescape")
        spans = [] if "session-ids" in self._places else list(session_spans(data, data.lower()))
        without_ids, first = replace(data, spans)
        clean, second = self._apply(without_ids)
        return clean.decode(errors="surrogateescape"), first + second

    def headers(self, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], int]:
        """The headers that may be recorded, lower case, with session ids hashed.

        An allowlist: a header that is not in `HEADERS` is left out and not counted. Of a repeated
        header the values are joined with a comma (RFC 9110 5.3).
        """
        kept: dict[str, str] = {}
        total = 0
        for name, value in pairs:
            key = name.lower()
            if key not in HEADERS:
                continue
            if key in SESSION_HEADERS:
                clean, count = hashed("session-id", value), 1
            else:
                clean, count = self.url(value)
            kept[key] = f"{kept[key]}, {clean}" if key in kept else clean
            total += count
        return kept, total

    @functools.cached_property
    def _hints(self) -> frozenset[str]:
        """Lower-case texts: without one of them no shape matches and no name is telling."""
        hints = {needle for row in self._shapes for needle in row.needles} - {""}
        if self._places:
            hints |= NAME_HINTS
        return frozenset(h for h in hints if not any(o in h for o in hints - {h}))

    @functools.cached_property
    def _looked_for(self) -> Texts:
        return Texts(sorted(self._hints))

    @functools.cached_property
    def _needles(self) -> dict[bytes, list[tuple[int, int, bytes]]]:
        """For a hint: the number of a shape, and where in which of its needles the hint stands."""
        found: dict[bytes, list[tuple[int, int, bytes]]] = {}
        for number, row in enumerate(self._shapes):
            for needle in row.needles:
                for hint in self._hints:
                    for at in re.finditer(re.escape(hint), needle):
                        entry = (number, at.start(), needle.encode())
                        found.setdefault(hint.encode(), []).append(entry)
        return found

    @functools.cached_property
    def _tokens(self) -> Texts:
        """First look at known token prefixes; the shortest of their tails has 14 characters."""
        return Texts(self._by_prefix, ahead=r"[A-Za-z0-9_.=+/%-]{14}")

    def _apply(self, data: bytes) -> tuple[bytes, int]:
        spans = self._found(data)
        return (UNSEARCHABLE, 1) if spans is None else replace(data, spans)

    def _found(self, data: bytes) -> list[Span] | None:
        """What is to go; None where so much looks like secrets that it cannot all be looked at."""
        if not self.rules:
            return []
        plain = unescape(data)
        view = plain[0] if plain else data
        low = view.lower()
        hits = self._looked_for.find(low)
        tokens = self._tokens.find(view)
        if len(hits) + len(tokens) > _HITS + len(data) // _BYTES_PER_HIT:
            return None
        spans = self._token_spans(view, tokens) if tokens else []
        if hits or self._always:
            spans += self._spans(view, low, hits)
        if plain:
            back = plain[1]
            spans = [Span(*back(span.start, span.end), span.instead) for span in spans]
            if b"%2" in data and b"://" in data and "url-password" in self.rules:
                # In the plain view an escaped `/` ends the part of a URL that a password is in.
                row = next(row for row in self._shapes if row.name == "url-password")
                spans += self._shape_spans(data, row, set(_all(b"://", data)))
        return spans

    def _spans(self, view: bytes, low: bytes, hits: list[Hit]) -> list[Span]:
        spans: list[Span] = []
        if "session-ids" in self._places:
            spans += session_spans(view, low)
        if self._places and (named := [hit for hit in hits if hit.text in _NAMES]):
            spans += named_spans(view, low, self._places, named)
        starts: dict[int, set[int]] = {number: set() for number in self._always}
        for hit in hits:
            for number, offset, needle in self._needles.get(hit.text, ()):
                if low.startswith(needle, at := hit.start - offset) and at >= 0:
                    starts.setdefault(number, set()).add(at)
        for number in sorted(starts):
            spans += self._shape_spans(view, self._shapes[number], starts[number])
        return spans

    def _shape_spans(self, view: bytes, row: Shape, starts: set[int]) -> list[Span]:
        spans: list[Span] = []
        pattern, check = _compiled(row.pattern), CHECKS.get(row.check)
        reach = REACH.get(row.name)
        for match in (
            matches_near(pattern, view, sorted(starts), *reach) if reach else pattern.finditer(view)
        ):
            value = match["secret"]
            if value and not done(value) and (check is None or check(value)):
                spans.append(Span(*match.span("secret"), _instead(row)))
        return spans

    def _token_spans(self, view: bytes, hits: list[Hit]) -> list[Span]:
        spans: list[Span] = []
        first = last = run = tries = 0
        for start, _, text in hits:
            if first < start < last or (start < run and tries > MOST_TRIES):
                continue
            row = self._by_prefix[text.decode()]
            if not _may_begin(view, start):
                continue
            if found := _compiled(re.escape(text.decode()) + row.tail).match(view, start):
                first, last = start, found.end()
                spans.append(Span(start, last, _instead(row)))
                continue
            tries = tries + 1 if start < run else 1
            if start >= run and (long := _RUN.match(view, start)):
                run = long.end()
        return spans


_NAMES: Final = frozenset(name.encode() for name in NAME_HINTS)

SESSION_HEADERS: Final = frozenset({"mcp-session-id", "x-session-id"})
"""Headers whose value is hashed under every policy."""

HEADERS: Final = SESSION_HEADERS | words(
    """accept accept-encoding age allow cache-control connection content-encoding content-length
    content-type date expect host keep-alive last-event-id location mcp-method mcp-name
    mcp-protocol-version origin retry-after server traceparent transfer-encoding upgrade
    user-agent vary via www-authenticate x-accel-buffering x-ratelimit-limit
    x-ratelimit-remaining x-ratelimit-reset x-request-id"""
)
"""Headers that may be recorded, and no others: what is not known to be harmless stays out."""


# --- patterns, compiled when first needed -------------------------------------------------------


@functools.cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


UNSEARCHABLE: Final = b"[redacted:unsearchable]"
"""Stands for a whole frame in which the search would take seconds: it holds up all traffic."""

_HITS: Final = 20_000
_BYTES_PER_HIT: Final = 50
"""So many places to look at, and one more for so many bytes: of 99,307 recorded messages none
had more than 500."""

_RUN: Final = re.compile(rb"[A-Za-z0-9_.=+/%-]+")
"""What the tail of a token may consist of: a token found nowhere in it is not looked for in vain
as often as its prefix stands there."""


def _may_begin(view: bytes, start: int) -> bool:
    r"""No letter or digit stands before, unless it belongs to an escape like `\n` or `%3D`."""
    if not start or not view[start - 1 : start].isalnum():
        return True
    return _ESCAPE_BEFORE.search(view, max(0, start - 24), start) is not None


_ESCAPE_BEFORE: Final = re.compile(
    rb"(?:\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|(?:\x1b|\\u001[Bb])\[[0-9;]{0,16}m)\Z"
)
"""Also what switches colours on a terminal: its last letter is no beginning of a word."""


def _all(text: bytes, data: bytes) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(text), data)]


def _is_json(frame: bytes) -> bool:
    try:
        msgspec.json.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _instead(row: Prefix | Shape) -> bytes:
    if row.name == "url-password":
        return URL_PASSWORD
    return f"[redacted:{row.name}]".encode()
