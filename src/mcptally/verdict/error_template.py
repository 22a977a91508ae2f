"""Reduces an error text to a template: the message without the parts that vary between calls.

`templates` strips the text around the message (prefixes of SDKs, JSON, tracebacks, headings), then
replaces quoted text, URLs, paths, times, ids and numbers with placeholders.
"""

import functools
import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.tables.arrow import indices
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.verdict import error_text

MAX_TEMPLATE: Final = 200
"""Maximum length of a template in characters."""

_MAX_PASSES: Final = 8
"""Maximum number of layers that are removed around a message."""

_PREFIXES: Final = "(?i)^(?:[\\s\"'`]*(?:" + "|".join(error_text.PREFIXES) + "))+"
_ENCLOSED: Final = r"""(?s)^(?:"([^"]*)"|'([^']*)'|`([^`]*)`)$"""
_HEADINGS: Final = r"^(?:[\s>]*(?:#+ [^\n]*|\*\*[^\n*]+\*\*:?[ \t]*|[-=*]{3,}[^\n]*)\n)+"
_SYMBOL: Final = r"\s#*>•·❌⚠️🚫🔴✗✘×⛔❗🔒🔧⚙🌐🔍💥🛑‼😞\u{fe0f}"  # noqa: RUF001
_SYMBOLS: Final = f"^[{_SYMBOL}]+"
_BARE_LINES: Final = (
    rf"^(?:[{_SYMBOL}]*(?:(?i)errors?|failed|failure|warning|stdout|stderr|output|results?)"
    r"[:!.=\- ]*\n)+"
)
"""Matches lines at the start of a text that report a failure but not its cause."""


# Tracebacks of Python, including those that rich boxes, and those joined to one line.
_TRACEBACK: Final = r"Traceback \(most recent call last\)"
_EXCEPTION_NAME: Final = (
    r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Failure|Group|Interrupt|Timeout|Warning)"
)
_EXCEPTIONS: Final = (
    rf"(?s){_TRACEBACK}.*\n({_EXCEPTION_NAME}(?::[^\n]|\n|$).*)$",
    rf"(?s){_TRACEBACK}.*\n[ \t|+^~╰│][^\n]*\n+([^\s|+^~╰│][^\n]*)",
    rf"(?s){_TRACEBACK}.*\s({_EXCEPTION_NAME}: .*)$",
)
"""Patterns for the last exception in a traceback: by its name, after an indented line, or on one
line."""

# The first line only names the operation that failed; the message follows.
_PYDANTIC: Final = (
    r"(?s)^(?:[\w.]+: )?\d+ validation errors? for ([^\n]+)\n(\S[^\n]*)\n\s+([^\n]*?)"
    r"(?: \[type=[^\n]*)?(?:\n.*)?$"
)
_STDERR: Final = r"(?s)^([^\n]*?)[:\s]*\n.*?\bstderr:\s*['\"]?(\S.*?)['\"]?\s*$"
_SHELL_COMMAND: Final = r"(?s)^Command failed: [^\n]*\n(\s*\S.*)$"
_EXIT_CODE: Final = (
    r"(?is)^([^\n]*(?:exit|failed with)[^\n]{0,20}(?:code|status)[: =-]*[0-9]+|"
    r"[^\n]{0,40} failed)[.:! ]*\n\s*(\S.*)$"
)
"""Matches a first line with a program's exit status, and the line that gives the reason."""
_ANNOUNCED: Final = (
    r"(?is)^([^\n]*\b(?:errors?|exception|failed|invalid|panicked|reason|message|details?|output"
    r"|results?)\b[^\n]*[:：])\s*\n\s*(\S.*)$"  # noqa: RUF001
)

# JSON, which may be in the middle of a text, truncated, or printed by Python with single quotes.
# Any non-ASCII character matches, because compiling sixty copies of the Unicode class \w takes 14
# ms.
_JSON_START: Final = (
    r"""(?s)^(.*?)[(\s:]*[\[{][\[{\s]*(["'][0-9A-Za-z_$@.\-[^\x00-\x7f]]{1,60}["']\s*:.*)$"""
)
_JSON_STRING: Final = r"""\s*:\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')"""
_MESSAGE_MEMBERS: Final = (
    *("error_?message", "message", "msg", "error_?description", "detail", "details", "reason"),
    *("error", "errors", "err", "description", "title", "cause", "stderr", "code"),
)
"""Patterns for names of members that may contain the message, at any depth, most specific first."""
_LITERALS: Final = {name: max(re.split(r"_\?|[sk]", name), key=len) for name in _MESSAGE_MEMBERS}
"""Maps each pattern to its longest run of letters other than s and k, for a fast search. If case is
ignored, s and k also match U+017F and U+212A."""
_JSON_PATH: Final = r"""(?s)["']path["']\s*:\s*\[\s*((?:"[^"]*"|\d+|[,\s])*)\]"""

_PARTS: Final = {
    **{f"exception{number}": pattern for number, pattern in enumerate(_EXCEPTIONS)},
    "json": _JSON_START,
    "pydantic": _PYDANTIC,
    "stderr": _STDERR,
    "command": _SHELL_COMMAND,
    "exit": _EXIT_CODE,
    "announced": _ANNOUNCED,
    "line": r"^([^\r\n]*[0-9A-Za-z[^\x00-\x7f]][^\r\n]*)",
    # Indented JSON without a message: use its first member.
    "member": r"""^[\s{\["']+([^\r\n]+)""",
}
"""Patterns whose groups are the parts of a text that may be its message."""

_MASKS: Final = (
    (r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'`<>]+", "<url>"),
    (r'"[^"\n]*"|`[^`\n]*`|\B\'(?:[^\'\n]|\b\'\b)*\'\B|“[^”\n]*”|‘[^’\n]*’|«[^»\n]*»', "<text>"),  # noqa: RUF001
    (r"(?:\b[A-Za-z]:)?[\w.@~+-]*(?:[\\/][\w.@~+-]+){2,}[\\/]?", "<path>"),
    (r"(^|[\s(\[=:,])/[\w.@~+-]+/?", "${1}<path>"),
    (
        r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z\b|[+-]\d\d:?\d\d\b)?)?",
        "<time>",
    ),
    (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{12,}\b", "<id>"),
    (r"\b\w*(?:\d[A-Za-z_]+){2,}\d\w*\b|[A-Za-z0-9_+/=-]{60,}", "<id>"),
    (r"(?:\B-)?\b\d+(?:[.,]\d+)*(?:[kMGT]?i?[Bb]|[mnµ]?s|min|[hd%])?\b", "<n>"),
    (r"(<text>|<n>)(?:(?:\s*[,|]\s*|\s*,?\s+(?:or|and)\s+)(?:<text>|<n>))+", "${1}, …"),
)
"""Maps patterns of texts that vary between calls to their placeholders."""


def templates(texts: pl.Series) -> pl.Series:
    """Reduce each text to a template of at most `MAX_TEMPLATE` characters.

    The template is null if the text is null or white space. A template is never empty.
    """
    text = pl.col("text")
    short = pl.concat_str(
        text.str.head(error_text.HEAD), pl.lit(" … "), text.str.tail(error_text.TAIL)
    )
    is_long = text.str.len_chars() > error_text.HEAD + error_text.TAIL
    frame = texts.alias("text").to_frame()
    distinct = (
        frame.lazy()
        .unique(maintain_order=True)
        .filter(text.str.contains(r"\S"))
        .with_columns(read=pl.when(is_long).then(short).otherwise(text))
        .pipe(run_query)
    )
    if not distinct.height:
        return pl.Series("template", [None], pl.String).new_from_index(0, len(texts))
    messages = _until_stable(distinct["read"], _unwrap)
    made = _until_stable(messages, _mask).alias("template")
    known = distinct[["text"]].hstack([made])
    return frame.join(known, on="text", how="left", maintain_order="left")["template"]


def _until_stable(texts: pl.Series, step: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Repeat a step on each text until it changes nothing more, at most `_MAX_PASSES` times."""
    rows = np.arange(len(texts))
    done: list[tuple[npt.NDArray[np.int64], pl.Series]] = []
    for _ in range(_MAX_PASSES):
        if not len(texts):
            break
        after = step(texts)
        same = after == texts
        done.append((rows[same.to_numpy()], texts.filter(same)))
        rows, texts = rows[~same.to_numpy()], after.filter(~same)
    done.append((rows, texts))
    order = np.argsort(np.concatenate([rows for rows, _ in done]))
    return pl.concat([texts for _, texts in done])[indices(order)]


def _unwrap(texts: pl.Series) -> pl.Series:
    """Remove one layer of wrapping around the message of each text."""
    query = texts.alias("text").to_frame().lazy()
    for columns in _layers():
        query = query.with_columns(columns)
    parts = query.unnest(list(_PARTS), separator="_")
    frame = parts.with_columns(pl.col(r"^.+_\d$").str.strip_chars()).pipe(run_query)
    messages = _json_messages(frame["json_2"])
    return (
        frame.lazy()
        .with_columns(messages.alias("json_2"))
        .select(_message())
        .pipe(run_query)["text"]
    )


@functools.cache
def _layers() -> list[list[pl.Expr]]:
    """Return the lists of column expressions that `_unwrap` evaluates one after the other.

    A list uses the columns of the lists before it, because nested expressions would be planned
    again wherever they occur. The result is cached: building it takes as long as the query.
    """
    text = pl.col("text")
    steps = [[text.str.strip_chars()]]
    for pattern in (_ENCLOSED, _HEADINGS, _BARE_LINES, _SYMBOLS, _PREFIXES):
        steps += [
            [text.str.replace(pattern, "${1}${2}${3}").str.strip_chars().alias("rest")],
            [pl.when(pl.col("rest") != "").then("rest").otherwise("text").alias("text")],
        ]
    parts = [text.str.extract_groups(pattern).alias(name) for name, pattern in _PARTS.items()]
    return [*steps, parts]


@functools.cache
def _message() -> pl.Expr:
    """Return an expression for a text's message.

    It is the first column of `_layers` that is not null, or else the whole text.
    """
    return pl.coalesce(
        r"^exception\d_1$",
        _joined("json_1", "json_2"),
        formatted("validation error for {}: {} at {}", "pydantic_1", "pydantic_3", "pydantic_2"),
        _joined("stderr_1", "stderr_2"),
        "command_1",
        _joined("exit_1", "exit_2"),
        _joined("announced_1", "announced_2"),
        "line_1",
        "member_1",
        "text",
    ).alias("text")


def _joined(head: str, message: str) -> pl.Expr:
    """Return an expression that joins a column's last line and a message with a colon, or null."""
    before = pl.col(head).str.extract(r"([^\n]*)$", 1).str.strip_chars(" :：([{-")  # noqa: RUF001
    both = pl.concat_str(before, pl.lit(": "), message)
    return pl.when(before != "").then(both).otherwise(message)


def _json_messages(texts: pl.Series) -> pl.Series:
    """Return the string in the first non-empty member of `_MESSAGE_MEMBERS`, unescaped.

    The result is null if a text has none of these members.
    """
    if texts.null_count() == len(texts):
        # Return early, because compiling the patterns would take longer than all other steps.
        return texts
    json = pl.col("text")
    frame = texts.alias("text").to_frame()
    # Search for the names of members first, because compiling the pattern of a member takes longer.
    occurs = (
        frame.lazy()
        .select(
            json.str.contains_any([literal], ascii_case_insensitive=True).any().alias(name)
            for name, literal in _LITERALS.items()
        )
        .pipe(run_query)
    )
    names = [name for name in _MESSAGE_MEMBERS if occurs[name][0]]
    strings = frame.lazy().select(
        *(
            json.str.extract(f"(?i)[\"']{name}[\"']{_JSON_STRING}", group).alias(f"{name}.{group}")
            for name in names
            for group in (1, 2)
        ),
        field=json.str.extract(_JSON_PATH, 1)
        .str.replace_all(r'[\s"]', "")
        .str.replace_all(",", "."),
    )
    escaped = pl.concat_str(pl.lit('{"text":"'), "message", pl.lit('"}'))
    # Zod lists one issue per field; without the field's name, `Required` is meaningless.
    at_field = pl.concat_str("message", pl.lit(" at "), "field")
    message = pl.when(pl.col("field") != "").then(at_field).otherwise("message")
    return (
        strings.select(
            pl.coalesce(pl.exclude("field").replace("", None), pl.lit(None, pl.String)).alias(
                "message"
            ),
            "field",
        )
        .with_columns(
            message=pl.coalesce(escaped.str.json_path_match("$.text"), "message").str.strip_chars()
        )
        .select(pl.when(pl.col("message").str.contains(r"\S")).then(message).alias("message"))
        .pipe(run_query)["message"]
    )


def _mask(texts: pl.Series) -> pl.Series:
    """Put each text on one line with placeholders, in at most `MAX_TEMPLATE` characters."""
    masked, cut = _masked_and_cut()
    query = texts.alias("text").to_frame().lazy().select(masked).select(cut)
    return query.pipe(run_query)["text"]


@functools.cache
def _masked_and_cut() -> tuple[pl.Expr, pl.Expr]:
    """Return two expressions: a masked text, and the masked text cut to the maximum length."""
    masked = pl.col("text").str.replace_all(r"\s+", " ").str.strip_chars()
    for pattern, placeholder in _MASKS:
        masked = masked.str.replace_all(pattern, placeholder)
    # Cut between words, because a truncated number or name would be masked differently.
    text = pl.col("text")
    head = text.str.head(MAX_TEMPLATE - 1).str.replace(r"\s\S*$", "") + "…"
    cut = pl.when(text.str.len_chars() > MAX_TEMPLATE).then(head).otherwise(text)
    return masked, cut.alias("text")
