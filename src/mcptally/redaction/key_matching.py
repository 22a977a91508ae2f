"""Finds secrets by the names next to them: in JSON at any depth, in plain text and in URLs.

`name: value` is written in many notations. Each consists of a name, a separator and a value, and
the name determines whether the value is secret.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Final

from mcptally.redaction.key_patterns import (
    SECRET_NAMES,
    VERBS_OF_SETTINGS,
    WORDS_BEFORE_HARMLESS_KEY,
    WORDS_BEFORE_HARMLESS_TOKEN,
    WORDS_BEFORE_KEY,
    WORDS_BEFORE_RANDOM_KEY,
    words,
)
from mcptally.redaction.scanner import MAX_FAILED_MATCHES, Hit, TextSearch
from mcptally.redaction.spans import Span, hashed, is_redacted, starts_redacted, unescaped_value
from mcptally.redaction.token_checks import random_like
from mcptally.redaction.value_checks import (
    NOT_A_SECRET_TEXT,
    PLACEHOLDER,
    PLACEHOLDERS,
    VALUE_CHECKS,
    WORDS_IN_NAME,
    is_expression,
    is_path,
    is_plausible_value,
)

_QUERY_NAMES: Final = words("key sig signature x-amz-signature x-goog-signature code auth")
"""Names that denote a secret only in a URL query: parts of a signed URL, an OAuth code."""

NAME_HINTS: Final = (
    words("pass pwd secret token key auth cookie credential jwt contrasena mnemonic seed verifier")
    | {"requeststate", "mcp-session-id", "/session", "?sid", "&sid", "?session", "&session"}
    | {mark + name for mark in "?&" for name in _QUERY_NAMES}
)
"""Lower-case texts: each name found by `secret_kind` or `session_id_spans` contains one."""

_SEPARATOR: Final = re.compile(
    rb"[a-z0-9_\-]{0,40}(?:"
    rb"(?P<quoted>\\*[\"'])(?:\]?\s{0,8}(?:=>|:=|[:=])"
    rb"|\s{0,8},\s{0,8}\\*[\"']val(?:ue)?\\*[\"']\s{0,8}:)\s{0,64}"
    rb"|(?P<word>\\*[\"']\s{0,64},)\s{0,64}(?=\\*[\"'])"
    rb"|(?P<attribute>\\*[\"']\s{1,8}val(?:ue)?\s?=\s?)(?=\\*[\"'])"
    rb"|(?P<element>\\*[\"']\s?>)"
    rb"|(?P<line>(?:\s{0,2}\n|\\+n)\s{0,40}value\s?:[ \t]{1,4})"
    rb"|(?P<plain>[ \t]{0,4}(?:=>|:=|[:=])[ \t]{0,4})"
    rb"|(?P<flag>[ \t]{1,4}|\n|\\+n)(?![ \t])"
    rb"|(?P<xml>(?: [^<>\"]{0,80})?>)"
    rb")"
)
"""Matches the part of a name after the found word, and the separator.

The searched bytes are in lower case."""

_QUOTE: Final = re.compile(rb"(\\*)([\"'])")
_PLAIN_VALUE: Final = re.compile(rb"[^\s\"'\\,;&<>(){}\[\]|`]{1,4096}")
_LONG_VALUE: Final = re.compile(rb"[^\s\"'\\,;&<>(){}\[\]|`]{128,4096}")
_NAME_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."


@functools.lru_cache(maxsize=4096)
def secret_kind(name: bytes) -> str | None:
    """Return the kind of secret that a name denotes (`password`, `token`, `api-key` …), or None.

    The last words of the name decide: `access_token` denotes a secret, but `token_type` and
    `maxTokens` do not. For the kinds in `VALUE_CHECKS`, the value must pass a check too.
    """
    parts = [part.lower().decode() for part in WORDS_IN_NAME.findall(name)]
    while parts and parts[-1].isdigit():
        parts.pop()
    if not parts:
        return None
    squashed = "".join(parts)
    if squashed == "requeststate":
        return "request-state"
    if squashed == "mcpsessionid":
        return "session-id"
    if parts[0] in VERBS_OF_SETTINGS and len(parts) > 1:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in {"token", "tokens"}:
        if before in WORDS_BEFORE_HARMLESS_TOKEN or (
            last == "tokens" and before not in WORDS_BEFORE_KEY | {"refresh"}
        ):
            return None
        return "token"
    if last in {"key", "keys"}:
        if before in WORDS_BEFORE_KEY:
            return "api-key"
        if name.isupper() and before and before not in WORDS_BEFORE_HARMLESS_KEY:
            return "api-key in capitals"
        return "api-key if random" if before in WORDS_BEFORE_RANDOM_KEY else None
    if last == "pass":
        return "password" if before or name.startswith(b"--") else "password beside a login"
    if last == "auth":
        return "auth"
    return SECRET_NAMES.get(last) or SECRET_NAMES.get(before + last) or SECRET_NAMES.get(squashed)


def spans_by_name(
    view: bytes, low: bytes, places: frozenset[str], hits: Iterable[Hit]
) -> Iterator[Span]:
    """Yield the spans of values whose names denote secrets.

    `view` is the frame after `unescape`, and `low` is `view` in lower case. `hits` are the
    occurrences in `low` of words from such names. `places` contains the names of the enabled
    `NAME_RULES`.
    """
    seen: set[int] = set()
    hidden = stretch = tries = 0
    for hit in hits:
        if hit.start < hidden or (hit.start < stretch and tries > MAX_FAILED_MATCHES):
            continue
        match = _SEPARATOR.match(low, hit.end)
        if match is None or match.end() in seen:
            continue
        seen.add(match.end())
        start = _name_start(view, hit.start)
        name = view[start : match.start(match.lastgroup or 0)]
        kind = secret_kind(name)
        found: Iterable[Span] = ()
        if match["quoted"] is not None or match["attribute"] is not None:
            if kind and _RULE_OF_KIND.get(kind, "keys") in places:
                found = _quoted_value_spans(view, match.end(), kind)
        elif match["word"] is not None:
            if kind and name.startswith(b"--") and "assignments" in places:
                found = _next_word_spans(view, match.end(), kind)
        elif "assignments" in places:
            found = _assignment_spans(view, match, start, name, kind)
        before = hidden
        bare = name.lower() in _BARE_TOKEN_NAMES
        for span in found:
            if bare and _is_model_token(view[span.start : span.end]):
                continue
            hidden = span.end
            yield span
        if hidden == before and (long := _LONG_VALUE.match(view, match.end())):
            tries = tries + 1 if hit.start < stretch else 1
            stretch = max(stretch, long.end())


def _is_model_token(value: bytes) -> bool:
    """Return whether the value looks like a language model's token, not a credential."""
    return value[:1] in _MODEL_TOKEN_STARTS or (len(value) < 6 and value.isalpha())


_BARE_TOKEN_NAMES: Final = frozenset({b"token", b"tokens"})
_RULE_OF_KIND: Final = {"request-state": "request-state", "session-id": "session-ids"}


def _name_start(view: bytes, at: int) -> int:
    """Return the offset at which the name around `at` starts.

    The `n` of an escaped line break is not part of a name.
    """
    if view[at : at + 1] in {b"?", b"&", b"/"}:
        return at + 1
    chunk = view[max(0, at - 48) : at]
    start = at - (len(chunk) - len(chunk.rstrip(_NAME_BYTES)))
    if start and view[start - 1 : start] == b"\\" and view[start : start + 1] in b"nrtbf":
        start += 1
    return min(start, at)


def _next_word_spans(view: bytes, at: int, kind: str) -> Iterator[Span]:
    """Yield the span of the list item at `at` if it may be the value of the preceding flag."""
    for span in _quoted_value_spans(view, at, kind):
        # Another flag or a sentence from a help text is not a value.
        word = view[span.start : span.end]
        if not word.startswith(b"-") and b" " not in word:
            yield span


def _quoted_value_spans(view: bytes, at: int, kind: str) -> Iterator[Span]:
    """Yield the span of the string that starts at `at`, or of each string in a list that does."""
    if view[at : at + 1] == b"[":
        while (quote := _LIST_ITEM.match(view, at + 1)) is not None:
            start, end = _quoted_content(view, quote)
            yield from _value_span(view, start, end, kind)
            at = end + len(quote[1]) + len(quote[2]) - 1
    elif quote := _QUOTE.match(view, at):
        start, end = _quoted_content(view, quote)
        yield from _value_span(view, start, end, kind)


_LIST_ITEM: Final = re.compile(rb"[\s,]{0,64}(\\*)([\"'])")


def _quoted_content(view: bytes, quote: re.Match[bytes]) -> tuple[int, int]:
    r"""Return the offsets of the start and end of a quoted string's content.

    A string that opens with a quote after n backslashes closes at the next quote after n
    backslashes. A quote after more backslashes belongs to the content: backslashes double with
    every level of escaping. A quote after fewer backslashes closes an outer string; the inner
    string was truncated.
    """
    depth, mark = len(quote[1]), quote[2]
    start = quote.end()
    if mark == b"'":
        stop = _SINGLE_END.search(view, start)
        return start, stop.start() if stop else len(view)
    period = 2 * (depth + 1)
    for closing in _DOUBLE.finditer(view, start):
        run = len(closing[1])
        if run % period == depth:
            return start, closing.end() - 1 - depth
        if run < depth:
            return start, closing.start()
    return start, len(view)


_DOUBLE: Final = re.compile(rb"(\\*)\"")
_SINGLE_END: Final = re.compile(rb"\\*['\"]")


def _value_span(view: bytes, start: int, end: int, kind: str) -> Iterator[Span]:
    value = view[start:end]
    if kind in VALUE_CHECKS:
        if not VALUE_CHECKS[kind](view, start, end):
            return
        kind = kind.partition(" ")[0]
    # Compare only the starts: after many backslashes, a second search may find a different end.
    if not value or starts_redacted(value) or value.rstrip(b"?").lower() in PLACEHOLDERS:
        return
    if kind in {"request-state", "session-id"}:
        yield Span(start, end, hashed(kind, unescaped_value(value)).encode())
        return
    scheme = _SCHEME.match(value)
    if kind == "authorization" and scheme:
        start += scheme.end()
        if is_redacted(view[start:end]):
            return
    if not value.strip(b"*.xX<>$: ") or PLACEHOLDER.match(view, start, end) or is_path(value):
        return
    if kind == "token" and _ADDRESS_OR_COLOUR.fullmatch(value):
        return
    if kind == "auth":
        # `auth` is a secret in Docker and npm configurations; elsewhere it is a mode such as
        # "none".
        if len(value) < 16 or not random_like(value):
            return
        kind = "authorization"
    yield Span(start, end, f"[redacted:{kind}]".encode())


_ADDRESS_OR_COLOUR: Final = re.compile(rb"0x[0-9A-Fa-f]{40}|#[0-9A-Fa-f]{3,8}")
"""Matches the address of a blockchain token's contract, or the colour of a syntax token."""


_MODEL_TOKEN_STARTS: Final = (b" ", b"\xc4", b"\xe2")
"""A language model's token for a whole word starts with a space or a byte that encodes one."""

_SCHEME: Final = re.compile(
    rb"(?i:bearer|basic|digest|token|apikey|negotiate|dpop|aws4-hmac-sha256) +"
)


def _assignment_spans(
    view: bytes, match: re.Match[bytes], start: int, name: bytes, kind: str | None
) -> Iterator[Span]:
    """Yield the value's span in `name=value`, `name: value`, `--name value` or `<name>value<`."""
    after = match.end()
    before = view[start - 1 : start]
    query = before in {b"?", b"&"} and match["plain"] == b"="
    if kind is None and not (query and name.lower().decode() in _QUERY_NAMES):
        return
    flag = name.startswith(b"--") or before == b"-"
    if match["flag"] is not None and not (flag or name.startswith(b"-")):
        return
    if before == b":" and _ARN.search(view, max(0, start - 120), start):
        return
    quote = _QUOTE.match(view, after)
    element = match["xml"] is not None or match["element"] is not None
    if quote and not query and not element:
        # The quote may close the string that contains the assignment: `"msg":"password: "`.
        first, last = _quoted_content(view, quote)
        text = view[first:last]
        if _SECRET_NAME.fullmatch(text) and secret_kind(_NAME_END.sub(b"", text)):
            return
        sure = (
            kind in {"password", "secret", "api-key"}
            or kind in VALUE_CHECKS
            or is_plausible_value(text, name, b"=")
        )
        if _is_closed(view, last, quote) and sure and not NOT_A_SECRET_TEXT.search(text):
            yield from _value_span(view, first, last, kind or "token")
        return
    if (found := _PLAIN_VALUE.match(view, after)) is None:
        return
    value = found[0]
    if query:
        wanted = len(value) >= 16 if kind is None else True
    elif element:
        wanted = view[found.end() : found.end() + 1] == b"<"
    else:
        scheme = _SCHEME.match(view, after)
        if scheme and (more := _PLAIN_VALUE.match(view, scheme.end())):
            found, value = more, more[0]
        separator = b"=" if flag else (match["plain"] or b"")
        calls = view[found.end() : found.end() + 1] in {b"(", b"["}
        wanted = (
            not calls
            and is_plausible_value(value, name, separator)
            and not is_expression(view, found, name, separator)
        )
        if match["flag"] is not None and (
            value.lower() in _WORDS_AFTER_FLAG or (value.isupper() and secret_kind(value))
        ):
            return
        if name.lower() in _COOKIE_HEADERS and match["plain"] == b": " and b"=" in value:
            # In a header line, the value may contain spaces. The value ends with the line or at a
            # quote.
            if line := _LINE.match(view, found.start()):
                yield Span(*line.span(), b"[redacted:cookie]")
            return
    if wanted and not is_redacted(value):
        yield from _value_span(view, found.start(), found.end(), kind or "query-key")


_ARN: Final = re.compile(rb"\barn:[a-z-]{1,9}:[a-z0-9-]{1,30}:[a-z0-9-]{0,30}:[0-9]{0,12}:\Z")
"""Matches the beginning of an Amazon resource name, before the resource's kind and name."""

_COOKIE_HEADERS: Final = frozenset({b"cookie", b"set-cookie"})
_WORDS_AFTER_FLAG: Final = frozenset(
    b"and or option options flag flags argument arguments parameter parameters is are to for from "
    b"with if in can may must the as instead".split()
)
_SECRET_NAME: Final = re.compile(rb"[A-Za-z]+(?:[_-][A-Za-z]+){0,8}")
_NAME_END: Final = re.compile(rb"(?i)[_-]?(?:id|name|type)\Z")


_LINE: Final = re.compile(rb"[^\r\n\"'\\]{1,8192}")


def _is_closed(view: bytes, end: int, quote: re.Match[bytes]) -> bool:
    return view.startswith(quote[0], end)


def session_id_spans(view: bytes, low: bytes) -> Iterator[Span]:
    """Yield the spans of session ids in paths and query strings, with hashes as replacements."""
    starts = {
        hit.start - before
        for hit in _SESSION_WORDS.find(low)
        for before in (1, 3, 4, 5)
        if hit.start >= before and low[hit.start - before] in b"?&/"
    }
    for start in sorted(starts):
        if match := _SESSION.match(view, start):
            group = match.lastgroup or ""
            yield Span(*match.span(group), hashed("session-id", match[group].decode()).encode())


_SESSION_WORDS: Final = TextSearch(["session", "sid="])
"""One of these words must follow the `?`, `&` or `/` that begins a match of `_SESSION`."""

_SESSION: Final = re.compile(
    rb"(?:[?&](?i:(?:mcp[_-]?)?session[_-]?id|sid|x-session-id)=(?P<value>[A-Za-z0-9_\-.~%]{8,512})"
    rb"|/(?i:sessions?)/(?P<segment>[0-9A-Fa-f-]{16,128})(?![A-Za-z0-9_.-]))"
)
