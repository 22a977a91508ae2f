"""The text that rules read: without the wrappers around an error, of bounded length."""

# ruff: noqa: RUF001 - dashes, crosses and full-width colons are what servers write.

from typing import Final

import polars as pl

HEAD: Final = 1600
"""Characters from the start of a long text that rules read."""
TAIL: Final = 500
"""Characters from its end: the last line of a stack trace names the cause."""

_QUOTED_NAME: Final = r"""['"`“‘]?[\w.\-/:]+['"`”’]?"""
_ORNAMENT: Final = r"[\s#*>=\-–—•·|\[\]❌⚠️🚫🔴✗✘×⛔❗🔒🔧🌐🔍💥🛑‼😞\u{fe0f}]+"
# What the SDKs put before the message of a tool.
_CODED: Final = r"MCP error\s*-?\d+\s*[:\-]\s*"
_WHILE: Final = (
    r"(?:error|exception|failure)\s+(?:while\s+)?"
    r"(?:executing|calling|running|invoking|processing|in|during|handling)\s+(?:the\s+)?"
    r"(?:tool|command|function|method|request|query|call|operation)"
    rf"(?:\s+(?:call|execution|for))?(?:\s+{_QUOTED_NAME})?\s*[:：\-]\s+"
)
_NAMED: Final = (
    rf"(?:tool|function)\s+{_QUOTED_NAME}\s+(?:failed|error(?:ed)?|execution failed)\s*[:：\-]\s+"
)
_KIND_OF: Final = (
    r"(?:tool|function|mcp|operation|execution|runtime|system|server|unexpected|general|api)"
    r"[ _](?:execution |call |tool )?(?:error|exception|failed|failure)\s*[:：]\s*"
)
_OCCURRED: Final = (
    r"(?:an? )?(?:unexpected |unknown |internal )?(?:error|exception|problem) (?:has )?occur+ed"
    r"(?: (?:while|during|in|when|executing|with)\b[^:：\n]{0,60})?\s*[:：]\s*"
)
_PLAIN: Final = (
    r"(?:error|err|erro|errore|erreur|fehler|ошибка|错误|錯誤|エラー|오류|failed|failure|exception|"
    r"fatal|errors|mcperror|toolerror|tool_error|failed to execute)\s*[:：]\s*"
)
# A JSON envelope: the message is the first string after its key.
_FLAG: Final = (
    r"""\{\s*"(?:success|ok|status|iserror|is_error)"\s*:\s*(?:false|true|"[a-z_]+")\s*,\s*"""
)
_MESSAGE: Final = (
    r"""\{?\s*"(?:error|message|msg|detail|details|reason|error_message|errormessage)"\s*:"""
    r"""\s*\{?"?"""
)
# "[create-routine] Error: ...": the tool's or module's name in brackets.
_TAG: Final = r"\[[A-Za-z][\w.\-/]{1,60}\]\s*[:：]?\s+"
_ORNAMENTS: Final = "^(?:" + _ORNAMENT + r"|['`\"])+"
_WRAPPERS: Final = (
    *(_TAG, _ORNAMENT, _CODED, _WHILE, _NAMED, _KIND_OF, _OCCURRED, _PLAIN, _FLAG, _MESSAGE),
)
_STRIP: Final = "(?i)^(?:" + "|".join(_WRAPPERS) + ")+"
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


def _cut(text: pl.Expr) -> pl.Expr:
    """`text` itself, or its head and tail when it is long."""
    return (
        pl.when(text.str.len_chars() > HEAD + TAIL)
        .then(pl.concat_str(text.str.head(HEAD), pl.lit("\n…\n"), text.str.tail(TAIL)))
        .otherwise(text)
    )


def strip_wrappers(text: pl.Expr) -> pl.Expr:
    """`text` cut to length, without the wrappers that say only that something failed.

    Paths and queries of URLs are dropped: they hold the caller's words.
    """
    return _cut(text).str.replace(_STRIP, "").str.replace_all(_URL_REST, "$1")


def undecorated(text: pl.Expr) -> pl.Expr:
    """`text` without headings, bullets, quotes and signs at its start."""
    return text.str.replace(_ORNAMENTS, "")


def first_line(text: pl.Expr) -> pl.Expr:
    """`text` up to its first line break."""
    return text.str.extract(r"^([^\r\n]*)", 1)


def http_status(text: pl.Expr) -> pl.Expr:
    """An HTTP status of an error that `text` names near a status word."""
    head = text.str.head(HEAD)
    return pl.coalesce(head.str.extract(_STATUS, 1), head.str.extract(_STATUS_BY_NAME, 1)).cast(
        pl.Int32
    )
