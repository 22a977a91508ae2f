"""Applies redaction policies: finds secrets in bytes and replaces them with their names.

The search parses quotes, not documents: a value begins after a quote and ends at the next quote
with as many backslashes before it. This works in JSON, in JSON inside a string, in a torn frame and
in plain text alike. The rules are rows of `secret_patterns` and `key_patterns`. Two scans usually
show that a frame has no secret; such a frame is returned unchanged. docs/explanation/redaction.md
lists what is and is not found.

A secret becomes `[redacted:NAME]`. A session id or `requestState` becomes `[hashed:NAME:16 hex
digits]`, from the SHA-256 of the value, so that equal values stay equal. Replacements are not
redacted again.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from mcptally.errors import UsageError, near
from mcptally.redaction.key_matching import NAME_HINTS, secret_kind, session_id_spans, spans_by_name
from mcptally.redaction.key_patterns import NAME_RULES, NameRule, words
from mcptally.redaction.prose_patterns import PROSE_PATTERNS
from mcptally.redaction.scanner import MAX_FAILED_MATCHES, Hit, TextSearch, matches_near
from mcptally.redaction.secret_patterns import (
    ENCODED,
    SECRET_PATTERNS,
    TOKEN_PREFIXES,
    SecretPattern,
    TokenPrefix,
)
from mcptally.redaction.spans import (
    ESCAPES,
    URL_PASSWORD,
    Span,
    hashed,
    is_redacted,
    replace_spans,
    unescape,
    unescaped_value,
    within_strings,
)
from mcptally.redaction.token_checks import CHECKS, MATCH_REACH

BASES: Final = ("default", "strict", "none")
"""Base policies, which are the first word of a policy."""

ALL_PATTERNS: Final = (*SECRET_PATTERNS, *PROSE_PATTERNS)
"""All patterns for secrets that are recognised by the text around them."""

RULES: Final[dict[str, TokenPrefix | SecretPattern | NameRule]] = {
    row.name: row for rows in (NAME_RULES, ALL_PATTERNS, TOKEN_PREFIXES, (ENCODED,)) for row in rows
}
"""All rules by name."""

# --- policies ---------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def policy(text: str = "default") -> "Policy":
    """Parse a string like `default,+emails,-jwt` into a policy.

    The first word is `default`, `strict` (all rules) or `none`; each other word turns a rule on
    (`+`) or off (`-`). `RULES` contains the names of all rules.

    Raises:
        UsageError: a word is neither a policy nor a rule.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()] or ["default"]
    base = "default" if parts[0][0] in "+-" else parts.pop(0)
    if base not in BASES:
        raise UsageError(
            f"no redaction policy is called {base!r}; there are: {', '.join(BASES)}; switch "
            f"individual rules as in default,+emails,-jwt{near(base, BASES)}"
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
    """A set of redaction rules and the methods that apply it; created by `policy`."""

    def __init__(self, name: str, rules: frozenset[str]) -> None:
        self.name: Final = name
        """The policy as text, for `open.redaction`."""
        self.rules: Final = rules
        """Names of the active rules."""
        self._by_prefix: dict[str, list[TokenPrefix]] = {}
        for row in (*TOKEN_PREFIXES, ENCODED):
            for prefix in row.prefixes if row.name in rules else ():
                self._by_prefix.setdefault(prefix, []).insert(0, row)
        self._shapes = [row for row in ALL_PATTERNS if row.name in rules]
        self._unconditional = [n for n, row in enumerate(self._shapes) if "" in row.needles]
        self._places = frozenset(row.name for row in NAME_RULES if row.name in rules)

    def __repr__(self) -> str:
        return f"policy({self.name!r})"

    def json(self, frame: bytes) -> tuple[bytes, int]:
        """Return strict JSON with its secrets replaced, and the number of replacements.

        Only strings change: number formats, key order, duplicate keys and whitespace are kept. If
        nothing is replaced, the same object is returned.
        """
        if (spans := self._secret_spans(frame)) is None:
            return b'"%b"' % UNSEARCHABLE, 1
        if not spans:
            return frame, 0
        clean, count = replace_spans(frame, spans)
        if count and not _is_json(clean) and _is_json(frame):
            # The result is not JSON: a rule mistook a closing quote for an opening quote, or
            # replaced a number.
            clean, count = replace_spans(frame, within_strings(frame, spans))
        return clean, count

    def clean_frames(self, frames: Sequence[bytes]) -> frozenset[bytes]:
        """Return those frames that `json` would leave unchanged."""
        with_hits = self.frames_with_hits(frames)
        return frozenset([frame for n, frame in enumerate(frames) if n not in with_hits])

    def frames_with_hits(self, frames: Sequence[bytes]) -> Collection[int]:
        """Return the indexes of frames that `json` might change: large frames and frames with hits.

        Searching many small frames at once takes a tenth of the time of separate searches.
        """
        if self._unconditional:
            return range(len(frames))
        small = [n for n, frame in enumerate(frames) if len(frame) < _LARGE_FRAME_BYTES]
        # Join the frames with line breaks, because no searched text contains a line break.
        joined = b"\n".join([frames[n] for n in small])
        ends = list(accumulate([len(frames[n]) + 1 for n in small]))
        hits = (
            *ESCAPES.find(joined),
            *self._find_hints(joined.lower()),
            *self._prefix_search.find(joined),
        )
        large = {*range(len(frames))}.difference(small)
        return large | {small[bisect_right(ends, hit.start)] for hit in hits}

    def text(self, data: bytes) -> tuple[bytes, int]:
        """Redact bytes that are not JSON (a torn frame, stderr, a path); count the replacements."""
        return self._redact(data)

    def secrets(self, data: bytes) -> list[str]:
        """Return the secrets that `json` and `text` replace, both with JSON escapes and decoded."""
        found = [
            data[span.start : span.end]
            for span in self._secret_spans(data) or ()
            if not span.replacement.startswith(b"[hashed:")
        ]
        return [
            text
            for value in found
            for text in {value.decode(errors="replace"), unescaped_value(value)}
        ]

    def argv(self, command: Sequence[str]) -> tuple[list[str], int]:
        """Redact a command line, including values after flags (`--token X`); count replacements."""
        clean: list[str] = []
        flag: str | None = None
        words, total = self._options_of_command(command)
        for word in words:
            data = word.encode(errors="surrogateescape")
            named = flag and word and not word.startswith("-") and not is_redacted(data)
            if named and "assignments" in self.rules:
                new, count = f"[redacted:{flag}]".encode(), 1
            else:
                new, count = self._redact(data)
            clean.append(new.decode(errors="surrogateescape"))
            total += count
            flag = secret_kind(word.encode(errors="replace")) if word.startswith("--") else None
            flag = flag.partition(" ")[0] if flag else None
        return clean, total

    def _options_of_command(self, command: Sequence[str]) -> tuple[list[str], int]:
        """Redact passwords that can be recognised only if the command is known."""
        row = next((row for row in self._shapes if row.name == "command-password"), None)
        if row is None or any("\0" in word for word in command):
            return list(command), 0
        line = "\0".join(command).encode(errors="surrogateescape")
        low = line.lower()
        starts = {at for needle in row.needles for at in _positions(needle.encode(), low)}
        line, count = replace_spans(line, self._shape_spans(line, row, starts))
        return line.decode(errors="surrogateescape").split("\0") if command else [], count

    def url(self, url: str) -> tuple[str, int]:
        """Redact a URL or path; session ids are hashed under every policy."""
        data = url.encode(errors="surrogateescape")
        spans = [] if "session-ids" in self._places else list(session_id_spans(data, data.lower()))
        without_ids, first = replace_spans(data, spans)
        clean, second = self._redact(without_ids)
        return clean.decode(errors="surrogateescape"), first + second

    def headers(self, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], int]:
        """Return the headers that may be recorded, and the number of replacements.

        Names are in lower case, and session ids are hashed. A header that is not in `HEADERS` is
        left out and not counted. Values of a repeated header are joined with a comma (RFC 9110
        5.3).
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
        """Return lower-case strings, at least one of which occurs in every frame with a secret."""
        hints = {needle for row in self._shapes for needle in row.needles} - {""}
        if self._places:
            hints |= NAME_HINTS
        return frozenset(h for h in hints if not any(o in h for o in hints - {h}))

    @functools.cached_property
    def _hint_searches(self) -> tuple[TextSearch, TextSearch, TextSearch]:
        """Return three searches: for ASCII hints, for UTF-8 hints, and for hints with escapes."""
        wide = {hint for hint in self._hints if not hint.isascii()}
        escaped = {hint for hint in self._hints if "\\u" in hint}
        groups = (self._hints - wide - escaped, wide, escaped)
        ascii_hints, in_utf8, with_escapes = (TextSearch(sorted(group)) for group in groups)
        return ascii_hints, in_utf8, with_escapes

    def _find_hints(self, low: bytes) -> list[Hit]:
        """Return the occurrences of hints in `low`, which is in lower case, from left to right."""
        ascii_hints, in_utf8, with_escapes = self._hint_searches
        hits = ascii_hints.find(low)
        more = [] if low.isascii() else in_utf8.find(low)
        if b"\\u" in low:
            more += with_escapes.find(low)
        return sorted(hits + more) if more else hits

    @functools.cached_property
    def _needles(self) -> dict[bytes, list[tuple[int, int, bytes]]]:
        """Map each hint to the needles that contain it.

        Every match of a `SecretPattern` contains one of its needles. Each needle is given as the
        index of its pattern, the offset of the hint in the needle, and the needle itself.
        """
        found: dict[bytes, list[tuple[int, int, bytes]]] = {}
        for number, row in enumerate(self._shapes):
            for needle in row.needles:
                for hint in filter(needle.__contains__, self._hints):
                    text, inside = hint.encode(), needle.encode()
                    entries = found.setdefault(text, [])
                    entries += [(number, at, inside) for at in _positions(text, inside)]
        return found

    @functools.cached_property
    def _prefix_search(self) -> TextSearch:
        """Return a search for prefixes of tokens."""
        return TextSearch(self._by_prefix)

    def _redact(self, data: bytes) -> tuple[bytes, int]:
        spans = self._secret_spans(data)
        return (UNSEARCHABLE, 1) if spans is None else replace_spans(data, spans)

    def _secret_spans(self, data: bytes) -> list[Span] | None:
        """Return the spans to replace; None if there are too many hits to check in time."""
        if not self.rules:
            return []
        plain = unescape(data)
        view = plain[0] if plain else data
        low = view.lower()
        hits = self._find_hints(low)
        tokens = self._prefix_search.find(view)
        if len(hits) + len(tokens) > _MAX_HITS + len(data) // _BYTES_PER_HIT:
            return None
        spans = self._token_spans(view, tokens) if tokens else []
        if hits or self._unconditional:
            spans += self._spans(view, low, hits)
        if plain:
            back = plain[1]
            spans = [Span(*back(span.start, span.end), span.replacement) for span in spans]
            if b"%2" in data and b"://" in data and "url-password" in self.rules:
                # In the unescaped view, an escaped `/` would end the userinfo part of a URL.
                row = next(row for row in self._shapes if row.name == "url-password")
                spans += self._shape_spans(data, row, set(_positions(b"://", data)))
        return spans

    def _spans(self, view: bytes, low: bytes, hits: list[Hit]) -> list[Span]:
        spans: list[Span] = []
        if "session-ids" in self._places:
            spans += session_id_spans(view, low)
        if self._places and (named := [hit for hit in hits if hit.text in _NAMES]):
            spans += spans_by_name(view, low, self._places, named)
        starts: dict[int, set[int]] = {number: set() for number in self._unconditional}
        for hit in hits:
            for number, offset, needle in self._needles.get(hit.text, ()):
                if low.startswith(needle, at := hit.start - offset) and at >= 0:
                    starts.setdefault(number, set()).add(at)
        for number in sorted(starts):
            spans += self._shape_spans(view, self._shapes[number], starts[number])
        return spans

    def _shape_spans(self, view: bytes, row: SecretPattern, starts: set[int]) -> list[Span]:
        spans: list[Span] = []
        pattern, check = _compiled(row.pattern), CHECKS.get(row.check)
        reach = MATCH_REACH.get(row.name)
        for match in (
            matches_near(pattern, view, sorted(starts), *reach) if reach else pattern.finditer(view)
        ):
            value = match["secret"]
            if value and not is_redacted(value) and (check is None or check(value)):
                spans.append(Span(*match.span("secret"), _replacement_for(row)))
        return spans

    def _token_spans(self, view: bytes, hits: list[Hit]) -> list[Span]:
        spans: list[Span] = []
        first = last = run = tries = decoded = 0
        for start, _, text in hits:
            if first < start < last or (start < run and tries > MAX_FAILED_MATCHES):
                continue
            if not _may_begin(view, start):
                continue
            prefix = text.decode()
            for row in self._by_prefix[prefix]:
                found = _compiled(re.escape(prefix) + row.tail).match(view, start)
                if found and row is ENCODED:
                    decoded += 1
                    if decoded > _MAX_DECODED or not self._encodes_a_secret(found[0]):
                        found = None
                if found:
                    break
            if found:
                first, last = start, found.end()
                spans.append(Span(start, last, _replacement_for(row)))
                continue
            tries = tries + 1 if start < run else 1
            if start >= run and (long := _RUN.match(view, start)):
                run = long.end()
        return spans

    def _encodes_a_secret(self, data: bytes) -> bool:
        """Return whether a base64 value encodes text that contains a secret."""
        import base64  # noqa: PLC0415 - few recordings need it

        plain = data.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        text = base64.b64decode(plain[: len(plain) // 4 * 4] + _padded(plain))
        return text.isascii() and any(
            not span.replacement.startswith(b"[hashed:") for span in self._secret_spans(text) or ()
        )


def _padded(plain: bytes) -> bytes:
    """Pad the last group of base64 text to four characters; drop the group if it has only one."""
    rest = plain[len(plain) // 4 * 4 :]
    return rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b""


_MAX_DECODED: Final = 50
"""Maximum number of base64 runs in a frame that are decoded."""


class LineRedactor:
    """Redacts the lines of a stream such as stderr, where a private key may span several lines."""

    def __init__(self, policy: Policy) -> None:
        self._policy: Final = policy
        self._lines_of_key = 0

    def text(self, line: bytes) -> tuple[bytes, int]:
        """Return the next line redacted, and the number of replacements, as `Policy.text` does."""
        if self._lines_of_key:
            self._lines_of_key -= 1
            if b"-----END " in line:
                self._lines_of_key = 0
                return self._policy.text(line)
            if found := _KEY_LINE.fullmatch(line):
                start, end = found.span("secret")
                return line[:start] + b"[redacted:private-key]" + line[end:], 1
            if line.strip():  # this line is not part of the key, but a later line may be
                return self._policy.text(line)
            return line, 0
        begin = "private-key" in self._policy.rules and _KEY_BEGINS.search(line)
        if begin and b"-----END " not in line[begin.end() :]:
            self._lines_of_key = _MAX_KEY_LINES
        return self._policy.text(line)


_KEY_BEGINS: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE: Final = re.compile(rb".{0,80}?(?P<secret>[A-Za-z0-9+/]{16,}={0,2}|=[A-Za-z0-9+/]{4})\s*")
"""Matches a line of a key, which may follow a time and a log level."""
_MAX_KEY_LINES: Final = 200
"""Maximum number of lines after the start of a private key that may belong to the key."""


_NAMES: Final = frozenset(name.encode() for name in NAME_HINTS)

SESSION_HEADERS: Final = frozenset({"mcp-session-id", "x-session-id"})
"""Headers whose values all policies hash."""

HEADERS: Final = SESSION_HEADERS | words(
    """accept accept-encoding age allow cache-control connection content-encoding content-length
    content-language content-range content-type date deprecation etag expect expires host
    if-match if-modified-since if-none-match keep-alive last-modified link
    last-event-id location mcp-method mcp-name
    mcp-protocol-version origin retry-after server traceparent transfer-encoding upgrade
    server-timing strict-transport-security sunset user-agent vary via www-authenticate
    x-accel-buffering x-ratelimit-limit
    x-ratelimit-remaining x-ratelimit-reset x-request-id"""
)
"""Allowlist of the headers that are recorded."""


# --- helpers ------------------------------------------------------------------------------------


@functools.cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


UNSEARCHABLE: Final = b"[redacted:unsearchable]"
"""Replaces a whole frame if searching it would take seconds."""

_LARGE_FRAME_BYTES: Final = 4096
"""Minimum size of a frame that is searched by itself."""

_MAX_HITS: Final = 20_000
_BYTES_PER_HIT: Final = 50
"""A frame may have `_MAX_HITS` hits, plus one for every `_BYTES_PER_HIT` bytes.

None of 99,307 recorded messages had more than 500.
"""

_RUN: Final = re.compile(rb"[A-Za-z0-9_.=+/%-]+")
"""Matches a run of token characters; at most `MAX_FAILED_MATCHES` matches may fail in it."""


def _may_begin(view: bytes, start: int) -> bool:
    r"""Return whether a token may begin here: not after a letter or digit outside an escape."""
    if not start or not view[start - 1 : start].isalnum():
        return True
    return _ESCAPE_BEFORE.search(view, max(0, start - 24), start) is not None


_ESCAPE_BEFORE: Final = re.compile(
    rb"(?:\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|(?:\x1b|\\u001[Bb])\[[0-9;]{0,16}m)\Z"
)
"""Matches an escape or a terminal colour code before a position, ending in a letter or digit."""


def _positions(text: bytes, data: bytes) -> list[int]:
    # `re.finditer` would compile a pattern for each of the 200 hints.
    size = len(text)
    return [end - size for end in accumulate(len(part) + size for part in data.split(text)[:-1])]


def _is_json(frame: bytes) -> bool:
    try:
        msgspec.json.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _replacement_for(row: TokenPrefix | SecretPattern) -> bytes:
    if row.name == "url-password":
        return URL_PASSWORD
    return f"[redacted:{row.name}]".encode()
