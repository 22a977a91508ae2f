"""Prepares error texts for rules: limits their length, and strips wrappers around the message."""

# ruff: noqa: RUF001 - servers write dashes, crosses and full-width colons.

from typing import Final

import polars as pl

from mcptally.tables.arrow import matches

HEAD: Final = 1600
"""Number of characters at the start of a long text that rules examine."""
TAIL: Final = 500
"""Number of characters at the end of a long text that rules examine, where a stack trace's last
line names the cause."""

# `(?-i:…)` saves 0.3 ms per class of word characters; case makes no difference to such a class.
_QUOTED_NAME: Final = r"""['"`“‘]?(?-i:[\w.\-/:])+['"`”’]?"""
_DECORATION: Final = r"[\s#*>=\-–—•·|\[\]❌⚠️🚫🔴✗✘×⛔❗🔒🔧🌐🔍💥🛑‼😞\u{fe0f}]+"
# Prefixes that SDKs put in front of a tool's message.
_CODE_PREFIX: Final = r"MCP error\s*-?\d+\s*[:\-]\s*"
_WHILE_CALLING: Final = (
    r"(?:error|exception|failure)\s+(?:while\s+)?"
    r"(?:executing|calling|running|invoking|processing|in|during|handling)\s+(?:the\s+)?"
    r"(?:tool|command|function|method|request|query|call|operation)"
    rf"(?:\s+(?:call|execution|for))?(?:\s+{_QUOTED_NAME})?\s*[:：\-]\s+"
)
_NAMED_TOOL_FAILED: Final = (
    rf"(?:tool|function)\s+{_QUOTED_NAME}\s+(?:failed|error(?:ed)?|execution failed)\s*[:：\-]\s+"
)
_ERROR_KIND: Final = (
    r"(?:tool|function|mcp|operation|execution|runtime|system|server|unexpected|general|api)"
    r"[ _](?:execution |call |tool )?(?:error|exception|failed|failure)\s*[:：]\s*"
)
_OCCURRED: Final = (
    r"(?:an? )?(?:unexpected |unknown |internal )?(?:error|exception|problem) (?:has )?occur+ed"
    r"(?: (?:while|during|in|when|executing|with)\b[^:：\n]*)?\s*[:：]\s*"
)
_ERROR_WORD: Final = (
    r"(?:error|err|erro|errore|erreur|fehler|ошибка|错误|錯誤|エラー|오류|failed|failure|exception|"
    r"fatal|errors|mcperror|toolerror|tool_error|failed to execute)\s*[:：]\s*"
)
# A JSON envelope: the message is the first string after the key.
_JSON_FLAG: Final = (
    r"""\{\s*"(?:success|ok|status|iserror|is_error)"\s*:\s*(?:false|true|"[a-z_]+")\s*,\s*"""
)
_JSON_MESSAGE: Final = (
    r"""\{?\s*"(?:error|message|msg|detail|details|reason|error_message|errormessage)"\s*:"""
    r"""\s*\{?"?"""
)
# "[create-routine] Error: ...": the name of the tool or module, in brackets.
_BRACKETED_NAME: Final = r"\[[A-Za-z](?-i:[\w.\-/])+\]\s*[:：]?\s+"
_DECORATIONS: Final = "^(?:" + _DECORATION + r"|['`\"])+"
PREFIXES: Final = (
    _CODE_PREFIX,
    _WHILE_CALLING,
    _NAMED_TOOL_FAILED,
    _ERROR_KIND,
    _OCCURRED,
    _ERROR_WORD,
)
"""Patterns for prefixes that SDKs and servers put before a message only to report a failure."""
_WRAPPERS: Final = (_BRACKETED_NAME, _DECORATION, *PREFIXES, _JSON_FLAG, _JSON_MESSAGE)
_ALL_WRAPPERS: Final = "(?i)^(?:" + "|".join(_WRAPPERS) + ")+"
_URL_REST: Final = r"""(https?://[^/\s"'<>)]+)/[^\s"'<>)\]]*"""

_STATUS: Final = (
    r"(?i)(?:\bHTTP(?:/\d(?:\.\d)?)?(?:\s+(?:error|status|code|response|request))*"
    r"|status(?:[ _]?code)?(?:\s+(?:is|of|was))?|\bcode|\bresponse|\berror|\breturned|\breceived"
    r"|\bfailed(?:\s+with)?|\bresponded(?:\s+with)?|\bfailure|\bresult|\bapi)"
    r"""[\s:=("'\[#,]{1,6}([45]\d{2})\b"""
)
_STATUS_BY_NAME: Final = (
    r"(?i)\b([45]\d{2})\b[\s:,\-–(\[]{1,3}"
    r"(?:bad request|unauthori[sz]ed|payment required|forbidden|not found|method not allowed"
    r"|not acceptable|proxy auth|request time-?out|conflict|gone|precondition failed"
    r"|payload too large|uri too long|unsupported media|unprocessable|locked|too many requests"
    r"|internal server|not implemented|bad gateway|service (?:temporarily )?unavailable"
    r"|gateway time-?out|client error|server error|error|access denied)"
)


_UNINFORMATIVE: Final = (
    r"(?i)^(?:MCP error -?\d+: )?(?:|"
    r"(?:error (?:executing|calling)|failed to execute) (?:tool:? )?"
    r"""['"`]?(?-i:[\w.\-/])+['"`]?|"""
    r"internal (?:server )?error|something went wrong|"
    r"(?:an? )?(?:internal |unexpected |unknown )(?:server )?(?:error|exception)"
    r"(?:(?: (?:has )?occurr?ed)? (?:while|during|in) ['\"`]?(?-i:[\w '-])+['\"`]?|"
    r" (?:has )?occurr?ed)?|"
    r"an? (?:error|exception) (?:has )?occurr?ed(?: (?:while|during|in) (?-i:[\w '-])+)?|"
    r"(?:failed|unable|could not|couldn't|error) (?:to )?\w+(?: (?-i:[\w'-])+){0,5})"
    r"(?:[.,;:\s(–—-]+(?:please )?(?:see|check|consult) (?:the |your )?(?:\w+ ){0,2}logs?"
    r"(?: files?)?(?: for (?:more |further )?(?:details|information|info))?\)?)?[.!:…\s]*$"
)
"""Matches generic texts that a server sends instead of an exception's message."""
THIS_TOOL: Final = "this_tool"
"""Word that replaces the tool's name before rules are applied."""
_IDENTIFIER: Final = r"[_\-./0-9]|[a-z][A-Z]"
"""Matches parts of a name that do not occur in ordinary words, such as `_`, digits and inner
capitals."""
_CODE: Final = r"(?:^|[\n(\[])([A-Za-z]+(?:_[A-Za-z]+){1,4})(?:$|[\n)\]:])"
"""Matches a code of several words."""
_MESSAGE_ONLY: Final = r"^ValueError:\s+"
"""Matches the exception class for rejected values, which says less about the cause than the
message."""


def cut(text: pl.Expr, head: int, tail: int) -> pl.Expr:
    """Cut each text that is longer than that to its first `head` and last `tail` characters."""
    return (
        pl.when(text.str.len_chars() > head + tail)
        .then(pl.concat_str(text.str.head(head), pl.lit("\n…\n"), text.str.tail(tail)))
        .otherwise(text)
    )


def strip_wrappers(text: pl.Expr) -> pl.Expr:
    """Cut each text to its first `HEAD` and last `TAIL` characters, and remove wrappers.

    Wrappers are prefixes that only report that something failed. The paths and queries of URLs are
    dropped too, because they contain the caller's words.
    """
    return cut(text, HEAD, TAIL).str.replace(_ALL_WRAPPERS, "").str.replace_all(_URL_REST, "$1")


def with_words_of_code(text: pl.Expr) -> pl.Expr:
    """Append the words of a code such as `NETWORK_ERROR`, alone in a line or in brackets.

    Patterns do not treat underscores as word boundaries.
    """
    words = text.str.extract(_CODE, 1).str.replace_all("_", " ", literal=True)
    return pl.concat_str(text, words, separator="\n", ignore_nulls=True)


def without_tool_name(text: pl.Expr, tool: pl.Expr) -> pl.Expr:
    """Replace the tool's name in each text with `THIS_TOOL`, because names are not evidence.

    A name that is also a word, such as "fetch", is replaced only where the text uses it as a name.

    Args:
        text: texts of replies.
        tool: names of tools; if null, the text is unchanged.
    """
    for before, after in (
        ("'", "'"),
        ('"', '"'),
        ("`", "`"),
        ("tool ", ""),
        ("tool: ", ""),
        ("", "("),
    ):
        text = _replaced(text, tool, before, after)
    return _replaced(text, pl.when(tool.str.contains(_IDENTIFIER)).then(tool), "", "")


def _replaced(text: pl.Expr, name: pl.Expr, before: str, after: str) -> pl.Expr:
    """Replace a name with `THIS_TOOL` wherever it stands between `before` and `after`."""
    parts = text.str.split(pl.concat_str(pl.lit(before), name, pl.lit(after)))
    return pl.when(name != "").then(parts.list.join(before + THIS_TOOL + after)).otherwise(text)


def is_uninformative(text: pl.Expr) -> pl.Expr:
    """Return an expression that is true if a text reports a failure without stating its cause."""
    return matches(text.str.replace(_ALL_WRAPPERS, ""), _UNINFORMATIVE)


def stack_trace(text: pl.Expr, exception: pl.Expr) -> pl.Expr:
    """Return whether a reply hides (`masked`) or repeats (`repeated`) an exception on stderr.

    Returns null if reply and exception are unrelated: the exception may have been handled, or may
    belong to another call.

    Args:
        text: the text of the reply.
        exception: the exception on stderr, or null.
    """
    message = exception.str.extract(r"^(?:[A-Za-z_$][\w.$]*(?: \[[\w ]+\])?:\s+)?([^\n]*)", 1)
    text = pl.when(exception.is_not_null()).then(text)
    return (
        pl.when(is_uninformative(text))
        .then(pl.lit("masked"))
        .when((message != "") & text.str.contains(message, literal=True))
        .then(pl.lit("repeated"))
    )


def informative_text(reply: pl.Expr, exception: pl.Expr) -> pl.Expr:
    """Return the reply or, if the reply names no cause, the exception on stderr."""
    reply_beside = pl.when(exception.is_not_null()).then(reply)  # few calls have both
    return pl.when(is_uninformative(reply_beside)).then(exception).otherwise(reply)


def hides_exception(reply: str) -> bool:
    """Return whether a reply reports a failure without stating its cause."""
    return bool(pl.select(is_uninformative(pl.lit(reply))).item())


def with_exception(stripped: pl.Expr, exception: pl.Expr, trace: pl.Expr) -> pl.Expr:
    """Return the text that rules examine: the reply's text, and the exception on stderr.

    An exception replaces a text that hides it (a `ValueError` without its class), and is added to a
    text that repeats it.

    Args:
        stripped: text of the reply after `strip_wrappers`.
        exception: the exception on stderr.
        trace: the result of `stack_trace`.
    """
    return (
        pl.when(trace == "masked")
        .then(exception.str.replace(_MESSAGE_ONLY, ""))
        .when(trace == "repeated")
        .then(pl.concat_str(stripped, pl.lit("\n"), exception))
        .otherwise(stripped)
    )


def strip_decoration(text: pl.Expr) -> pl.Expr:
    """Remove heading marks, bullets, quotes and symbols from the start of each text."""
    return text.str.replace(_DECORATIONS, "")


def first_line(text: pl.Expr) -> pl.Expr:
    """Return each text up to its first line break."""
    return text.str.extract(r"^([^\r\n]*)", 1)


def http_status(text: pl.Expr) -> pl.Expr:
    """Return the HTTP error status next to a word such as "status" in each text, or null."""
    head = text.str.head(HEAD)
    return pl.coalesce(head.str.extract(_STATUS, 1), head.str.extract(_STATUS_BY_NAME, 1)).cast(
        pl.Int32
    )
