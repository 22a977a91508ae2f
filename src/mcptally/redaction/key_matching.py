"""Secrets that are known by the name beside them: in JSON at any depth, in text, in URLs.

`name: value` has many spellings; all of them are a name, a separator and a value, and the name
alone says whether the value is secret.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Final

from mcptally.redaction.key_patterns import KEY_OWNERS, NEVER_FIRST, SQUASHED, words
from mcptally.redaction.scanner import MOST_TRIES, Hit, Texts
from mcptally.redaction.spans import URL_PASSWORD, Span, begins_done, decoded, done, hashed
from mcptally.redaction.token_checks import token_like

_QUERY_NAMES: Final = words("key sig signature x-amz-signature x-goog-signature code auth")
"""Names that say nothing in text and everything in a query: a signed URL, an OAuth code."""

NAME_HINTS: Final = (
    words("pass pwd secret token key auth cookie credential jwt contrasena mnemonic seed")
    | {"requeststate", "mcp-session-id", "/session", "?sid", "&sid", "?session", "&session"}
    | {mark + name for mark in "?&" for name in _QUERY_NAMES}
)
"""One of these is in every name that `secret_name` or `session_spans` knows, in lower case."""

_SEPARATOR: Final = re.compile(
    rb"[a-z0-9_\-]{0,40}(?:"
    rb"(?P<quoted>\\*[\"'])(?:\]?\s{0,8}(?:=>|:=|[:=])"
    rb"|\s{0,8},\s{0,8}\\*[\"']val(?:ue)?\\*[\"']\s{0,8}:)\s{0,64}"
    rb"|(?P<plain>[ \t]{0,4}(?:=>|:=|[:=])[ \t]{0,4})"
    rb"|(?P<flag>[ \t]{1,4}|\n|\\+n)(?![ \t])"
    rb"|(?P<xml>(?: [^<>\"]{0,80})?>)"
    rb")"
)
"""What may stand between a part of a name and its value, in lower case."""

_QUOTE: Final = re.compile(rb"(\\*)([\"'])")
_PLAIN_VALUE: Final = re.compile(rb"[^\s\"'\\,;&<>(){}\[\]|`]{1,4096}")
_LONG_VALUE: Final = re.compile(rb"[^\s\"'\\,;&<>(){}\[\]|`]{128,4096}")
_NAME_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_CAMEL: Final = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_EMPTY: Final = frozenset(
    b"null none nil true false undefined string str int number object bool boolean any required "
    b"optional redacted hidden changeme".split()
)


@functools.lru_cache(maxsize=4096)
def secret_name(name: bytes) -> str | None:
    """What a value with this name holds (`password`, `token`, `api-key` …), or None.

    The last words decide: `access_token` holds one, `token_type` and `maxTokens` do not.
    """
    parts = [part.lower().decode() for part in _CAMEL.findall(name)]
    while parts and parts[-1].isdigit():
        parts.pop()
    if not parts:
        return None
    squashed = "".join(parts)
    if squashed == "requeststate":
        return "request-state"
    if squashed == "mcpsessionid":
        return "session-id"
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in {"token", "tokens"}:
        if before in NEVER_FIRST or (last == "tokens" and before not in KEY_OWNERS | {"refresh"}):
            return None
        return "token"
    if last in {"key", "keys"}:
        return "api-key" if before in KEY_OWNERS else None
    if last == "pass":
        return "password" if before else None
    if last == "auth":
        return "auth"
    return SQUASHED.get(last) or SQUASHED.get(before + last) or SQUASHED.get(squashed)


def named_spans(
    view: bytes, low: bytes, places: frozenset[str], hits: Iterable[Hit]
) -> Iterator[Span]:
    """Values whose name says what they are; `hits` are places where a part of a name stands."""
    seen: set[int] = set()
    hidden = stretch = tries = 0
    for hit in hits:
        if hit.start < hidden or (hit.start < stretch and tries > MOST_TRIES):
            continue
        match = _SEPARATOR.match(low, hit.end)
        if match is None or match.end() in seen:
            continue
        seen.add(match.end())
        start = _name_start(view, hit.start)
        name = view[start : match.start(match.lastgroup or 0)]
        kind = secret_name(name)
        found: Iterable[Span] = ()
        if match["quoted"] is not None:
            if kind and _PLACE_OF.get(kind, "keys") in places:
                found = _values(view, match.end(), kind)
        elif "assignments" in places:
            found = _assigned(view, match, start, name, kind)
        before = hidden
        bare = name.lower() in _BARE
        for span in found:
            if bare and _is_word(view[span.start : span.end]):
                continue
            hidden = span.end
            yield span
        if hidden == before and (long := _LONG_VALUE.match(view, match.end())):
            tries = tries + 1 if hit.start < stretch else 1
            stretch = max(stretch, long.end())


def _is_word(value: bytes) -> bool:
    """Rather a token of a language model's than one that opens anything."""
    return value[:1] in _OF_A_MODEL or (len(value) < 6 and value.isalpha())


_BARE: Final = frozenset({b"token", b"tokens"})
_PLACE_OF: Final = {"request-state": "request-state", "session-id": "session-ids"}


def _name_start(view: bytes, at: int) -> int:
    """Where the name begins that has a stem at `at`; the `n` of an escaped line break is not it."""
    if view[at : at + 1] in {b"?", b"&", b"/"}:
        return at + 1
    chunk = view[max(0, at - 48) : at]
    start = at - (len(chunk) - len(chunk.rstrip(_NAME_BYTES)))
    if start and view[start - 1 : start] == b"\\" and view[start : start + 1] in b"nrtbf":
        start += 1
    return min(start, at)


def _values(view: bytes, at: int, kind: str) -> Iterator[Span]:
    """The string at `at`, or the strings of the list there."""
    if view[at : at + 1] == b"[":
        while (quote := _LIST_ITEM.match(view, at + 1)) is not None:
            start, end = _quoted(view, quote)
            yield from _hide(view, start, end, kind)
            at = end + len(quote[1]) + len(quote[2]) - 1
    elif quote := _QUOTE.match(view, at):
        start, end = _quoted(view, quote)
        yield from _hide(view, start, end, kind)


_LIST_ITEM: Final = re.compile(rb"[\s,]{0,64}(\\*)([\"'])")


def _quoted(view: bytes, quote: re.Match[bytes]) -> tuple[int, int]:
    r"""Where the content of a quoted string begins and ends.

    `\"` at a depth of n backslashes closes at the next quote with n before it. More may stand
    there: pairs of content backslashes, which double with every depth. Fewer close an outer
    string, and with it this one, which was cut.
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


def _hide(view: bytes, start: int, end: int, kind: str) -> Iterator[Span]:
    value = view[start:end]
    # The end of a value among many backslashes may be found elsewhere the second time.
    if not value or begins_done(value) or value.lower() in _EMPTY:
        return
    if kind in {"request-state", "session-id"}:
        yield Span(start, end, hashed(kind, decoded(value)).encode())
        return
    scheme = _SCHEME.match(value)
    if kind == "authorization" and scheme:
        start += scheme.end()
        if done(view[start:end]):
            return
    if not value.strip(b"*.xX<>$ "):
        return
    if kind == "auth":
        # Docker's and npm's configuration: a mode like "none" or "oauth2" elsewhere.
        if len(value) < 16 or not token_like(value):
            return
        kind = "authorization"
    yield Span(start, end, f"[redacted:{kind}]".encode())


_OF_A_MODEL: Final = (b" ", b"\xc4", b"\xe2")
"""With a blank, or what stands for one, begins a word as language models have it."""

_SCHEME: Final = re.compile(
    rb"(?i:bearer|basic|digest|token|apikey|negotiate|dpop|aws4-hmac-sha256) +"
)


def _assigned(
    view: bytes, match: re.Match[bytes], start: int, name: bytes, kind: str | None
) -> Iterator[Span]:
    """`name=value`, `name: value`, `--name value`, `<name>value<` in plain text."""
    after = match.end()
    before = view[start - 1 : start]
    query = before in {b"?", b"&"} and match["plain"] == b"="
    if kind is None and not (query and name.lower().decode() in _QUERY_NAMES):
        return
    flag = name.startswith(b"--") or before == b"-"
    if match["flag"] is not None and not flag:
        return
    quote = _QUOTE.match(view, after)
    if quote and not query and match["xml"] is None:
        # A quote may also close the string that the text stands in: `"msg":"password: "`.
        first, last = _quoted(view, quote)
        text = view[first:last]
        sure = kind in {"password", "secret", "api-key"} or _worth(text, name, b"=")
        if _closes(view, last, quote) and sure and not _NO_TEXT.search(text):
            yield from _hide(view, first, last, kind or "token")
        return
    if (found := _PLAIN_VALUE.match(view, after)) is None:
        return
    value = found[0]
    if query:
        wanted = len(value) >= 16 if kind is None else True
    elif match["xml"] is not None:
        wanted = view[found.end() : found.end() + 1] == b"<"
    else:
        scheme = _SCHEME.match(view, after)
        if scheme and (more := _PLAIN_VALUE.match(view, scheme.end())):
            found, value = more, more[0]
        separator = b"=" if flag else (match["plain"] or b"")
        calls = view[found.end() : found.end() + 1] in {b"(", b"["}
        wanted = not calls and _worth(value, name, separator)
        if kind in {"authorization", "cookie"} and match["plain"] == b": ":
            # A header line: its value has spaces and ends with the line or the quotation.
            line = _LINE.match(view, found.start())
            if kind == "cookie" and line and b"=" in line[0]:
                yield Span(*line.span(), b"[redacted:cookie]")
                return
    if wanted and not done(value):
        yield from _hide(view, found.start(), found.end(), kind or "query-key")


_NO_TEXT: Final = re.compile(rb"\s|\A(?:\$\{|\$\(|\{\{|<.*>\Z|.{0,2}\Z)")
"""A sentence, a template, or next to nothing."""
_LINE: Final = re.compile(rb"[^\r\n\"'\\]{1,8192}")


def _closes(view: bytes, end: int, quote: re.Match[bytes]) -> bool:
    return view.startswith(quote[0], end)


def _worth(value: bytes, name: bytes, separator: bytes) -> bool:
    """Does the value of an assignment in running text look like one, rather than like a word?"""
    if len(value) < 3 or value.lower() in _EMPTY or _NO_VALUE.match(value):
        return False
    if URL_PASSWORD in value:
        return False  # it did not look like one before the password in it was replaced
    if separator == b"=" and (name.isupper() or name.startswith(b"-")):
        return True
    if name[:2].lower() == b"x-":
        return True
    if b"://" in value[:12]:
        return False
    if value.isdigit() and len(value) >= 5 and _PIN.search(name):
        return True
    return token_like(value[:200]) or (
        separator == b"=" and len(value) >= 6 and not value.isalpha()
    )


_PIN: Final = re.compile(rb"(?i)pass|pwd|secret|pin\Z")
_NO_VALUE: Final = re.compile(
    rb"[=<:]|\$[A-Za-z_{(]|%[A-Za-z]\b|%\(|\{\{|--|\*+\Z|\.\.?/|\.{3}|~?(?:/[A-Za-z0-9_.-]+){2}"
)
"""A comparison, a variable, a template, a flag, an ellipsis, a path."""


def session_spans(view: bytes, low: bytes) -> Iterator[Span]:
    """Session ids in paths and queries."""
    starts = {
        hit.start - before
        for hit in _STEMS.find(low)
        for before in (1, 3, 4, 5)
        if hit.start >= before and low[hit.start - before] in b"?&/"
    }
    for start in sorted(starts):
        if match := _SESSION.match(view, start):
            group = match.lastgroup or ""
            yield Span(*match.span(group), hashed("session-id", match[group].decode()).encode())


_STEMS: Final = Texts(["session", "sid="])
"""One of them stands close behind the `?`, `&` or `/` where a match of `_SESSION` begins."""

_SESSION: Final = re.compile(
    rb"(?:[?&](?i:(?:mcp[_-]?)?session[_-]?id|sid|x-session-id)=(?P<value>[A-Za-z0-9_\-.~%]{8,512})"
    rb"|/(?i:sessions?)/(?P<segment>[0-9A-Fa-f-]{16,128})(?![A-Za-z0-9_.-]))"
)
