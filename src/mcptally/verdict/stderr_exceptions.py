"""Finds the exceptions in stack traces on stderr, and the calls that raised them.

Some SDKs hide an unexpected exception from the client ("Error executing tool x") and log it with
its stack trace. Traces in Python (plain, or in a box drawn by the library rich), JavaScript and
Java are supported.
"""

from typing import Final

import polars as pl

from mcptally.messages.event_tables import StderrEvents
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.tables.stages import GatheredCalls

MAX_CHARS: Final = 500
"""Maximum number of characters that are kept of an exception."""
LATE_NS: Final = 1_000_000_000
"""Maximum time in nanoseconds by which a trace may follow the reply: stdout and stderr are separate
pipes."""

_HEAD: Final = r"Traceback \(most recent call last\)|╭─+ Traceback \("
"""Matches the first line of a Python traceback. Rich truncates the title of a narrow box."""
_CHAIN: Final = r"\babove(?: exception(?: was|,|$)|$)|(?i)exception group traceback"
_TOOL: Final = r"""(?i)\btool:?\s+['"`]?((?-i:[\w.\-/])+)"""
_TERMINAL_CODES: Final = r"\x1b\[[0-9;]*m"
_BOX: Final = r"^\s*[│╭╰]"
_GROUP_MARGIN: Final = r"^\s*[|+] ?"
_LOG_LINE: Final = (
    r"(?i)^\s*(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|error (?:calling|executing) tool)\b"
)
_EXCEPTION: Final = r"^[A-Za-z_][\w.]*(?::\s|:?$)"
_MASK: Final = r"Error (?:executing|calling) tool ['\"\w.\-/]+$"
"""Matches exceptions with which an SDK wraps other exceptions without adding information."""
_FRAME: Final = r"^\s+at\s\S.*(?:[:)\]>]|\d)\s*$"
_NAMED_ERROR: Final = r"(?:Error|Exception|Failure)\b"
_UNPREFIXED: Final = r"([\w.$]*(?:Error|Exception|Failure)(?: \[[\w ]+\])?(?::\s.*)?)$"
"""Matches an exception at the end of a line, without the log prefix before it."""
_CAUSE: Final = r"^(?:Caused by|\[?(?:cause|(?:original|inner|previous|underlying|parent)\w*)\]?): "


class StderrExceptions(StageTable):
    """One row per stack trace on stderr."""

    recording = StderrEvents.recording
    ts_ns = StderrEvents.ts_ns
    tool = Column(pl.String, "Tool that the line before the trace names; null if it names none.")
    exception = Column(pl.String, "The exception, and before it those that it caused.")


class _Lines(StderrEvents):
    """One row per stderr line, with facts about the line and about the trace around it."""

    written = Column(pl.String, "The text of the event that holds the line.")
    head = Column(pl.Boolean, "Whether the line is the first of a trace of Python.")
    boxed = Column(pl.Boolean, "Whether it is part of a box that rich draws.")
    blank = Column(pl.Boolean, "Whether it is empty.")
    frame = Column(pl.Boolean, "Whether it is a frame of JavaScript or Java.")
    chars = Column(pl.UInt32, "Its characters.")
    unindented = Column(pl.String, "The line without the white space at its start.")
    margin = Column(pl.UInt32, "Characters of white space at its start.")
    word = Column(pl.UInt32, "Characters of its first word.")
    logged = Column(pl.Boolean, "Whether it begins like a log entry.")
    names_tool = Column(pl.Boolean, "Whether it names a tool.")
    chains = Column(pl.Boolean, "Whether it says that another trace follows.")
    block = Column(pl.UInt32, "Number of the trace in the recording.")
    before = Column(pl.String, "The line before the trace.")
    in_box = Column(pl.Boolean, "Whether the trace is in a box.")
    width = Column(pl.UInt32, "Characters of the first line of the trace.")
    ends = Column(pl.Boolean, "Whether the line is not part of the frames.")
    after = Column(pl.UInt32, "Number of such lines in the trace up to this one.")
    goes_on = Column(pl.Boolean, "Whether the line belongs to the exception.")
    same_entry = Column(pl.Boolean, "Whether no other log entry has begun.")
    chained = Column(pl.Boolean, "Whether the trace before says that another one follows.")
    first = Column(pl.Boolean, "Whether the line is the first of some frames.")
    exception = StderrExceptions.exception


class _Owned(StderrExceptions):
    """One row per pair of an exception and a reply that may belong to it."""

    at = Column(pl.Int64, "Time of the exception.", "ns")
    call = Column(pl.UInt32, "Number of the call.")
    reply_ns = GatheredCalls.reply_ns


def find_exceptions(stderr: pl.DataFrame) -> pl.DataFrame:
    """Return one row per stack trace on stderr (`StderrExceptions`), in chronological order.

    Chained exceptions share a row, in which the last exception comes first.

    Args:
        stderr: `StderrEvents`.
    """
    lines = _lines(stderr)
    if lines.is_empty():
        return StderrExceptions.empty()
    found = pl.concat([_of_python(lines), _of_frames(lines)])
    found = found.with_columns(StderrExceptions.exception.col.str.head(MAX_CHARS))
    return found.sort("ts_ns", "recording", maintain_order=True).pipe(run_query)


def _lines(stderr: pl.DataFrame) -> pl.DataFrame:
    """Split the stderr of recordings with a stack trace into lines; add facts about each line."""
    texts = (
        stderr.lazy()
        .select(written="text")
        .drop_nulls()
        .unique()
        .with_columns(text=_Lines.written.col.str.split("\n"))
        .explode("text", empty_as_null=False)
        .with_columns(_Lines.text.col.str.strip_chars_end().str.replace_all(_TERMINAL_CODES, ""))
        .with_columns(
            head=_Lines.text.col.str.contains(_HEAD), boxed=_Lines.text.col.str.contains(_BOX)
        )
        # Exception groups print a margin of | and + before each line.
        .with_columns(
            text=pl.when("boxed")
            .then("text")
            .otherwise(_Lines.text.col.str.replace(_GROUP_MARGIN, ""))
        )
        .with_columns(
            blank=_Lines.text.col == "",
            frame=_Lines.text.col.str.contains(_FRAME),
            chars=_Lines.text.col.str.len_chars(),
            unindented=_Lines.text.col.str.strip_chars_start(),
            logged=_Lines.text.col.str.contains(_LOG_LINE),
            names_tool=_Lines.text.col.str.contains(_TOOL),
            chains=_Lines.text.col.str.contains(_CHAIN),
        )
        .with_columns(
            margin=_Lines.chars.col - _Lines.unindented.col.str.len_chars(),
            word=_Lines.unindented.col.str.extract(r"^(\S+)", 1).str.len_chars(),
        )
        .drop("unindented")
        .pipe(run_query)
    )
    lines = (
        stderr.lazy()
        .select("recording", "seq", "ts_ns", written="text")
        .join(texts.lazy(), on="written", maintain_order="left_right")
        .drop("written")
    )
    with_trace = lines.filter(_Lines.head.col | _Lines.frame.col).select("recording").unique()
    return (
        lines.join(with_trace, on="recording", how="semi", maintain_order="left")
        .sort("recording", "seq", maintain_order=True)
        .pipe(run_query)
    )


def _earlier(lines: int) -> pl.Expr:
    """Return an expression for the text of the line that is `lines` lines earlier in the recording.

    The expression uses `shift`, because a window function would copy all texts.
    """
    same = _Lines.recording.col == _Lines.recording.col.shift(lines)
    return pl.when(same).then(_Lines.text.col.shift(lines))


def _of_python(lines: pl.DataFrame) -> pl.LazyFrame:
    """Return Python exceptions, whose names are on the line after the frames of a trace."""
    block = ["recording", "block"]
    text = _Lines.text.col
    body = _Lines.boxed.col | _Lines.head.col | _Lines.blank.col
    if not lines.get_column(_Lines.head.name).any():
        return StderrExceptions.empty().lazy()
    lines = (
        lines.lazy()
        .with_columns(
            block=_Lines.head.col.cum_sum().over("recording"),
            before=pl.when("head").then(_earlier(1)),
        )
        .filter(_Lines.block.col > 0)
        .with_columns(
            _Lines.boxed.col.first().over(block).alias("in_box"),
            pl.when("head").then("chars").alias("width"),
            _Lines.before.col.first().over(block),
        )
        .with_columns(ends=~body & (_Lines.in_box.col | (_Lines.margin.col == 0)))
        .with_columns(after=_Lines.ends.col.cum_sum().over(block))
        .pipe(run_query)
    )
    # Rich breaks the line of an exception where the next word does not fit into its box.
    width = _Lines.width.col.first().over(block)
    full = _Lines.chars.col.shift(1) + 1 + _Lines.word.col > width
    wraps = full & (_Lines.margin.col == _Lines.margin.col.shift(1)) & ~_Lines.logged.col
    goes_on = (_Lines.after.col == 1) | (_Lines.in_box.col & wraps).fill_null(value=False)
    kept = (
        lines.lazy()
        .with_columns(goes_on=goes_on)
        .filter(_Lines.after.col.is_between(1, 4) & ~body)
        .filter(_Lines.goes_on.col.cast(pl.Int8).cum_min().over(block) == 1)
    )
    # A new log entry may begin with an exception without frames. "The above exception" then means
    # that exception, so the next trace does not belong to the chain of the preceding entry.
    new_entry = (_Lines.after.col > 1) & (_Lines.names_tool.col | _Lines.logged.col)
    chained = (
        lines.lazy()
        .with_columns(same_entry=~new_entry.cum_max().over(block))
        .filter(_Lines.same_entry.col & _Lines.chains.col)
        .select("recording", _Lines.block.col + 1)
        .unique()
    )
    exceptions = (
        kept.group_by(block, maintain_order=True)
        .agg(
            _Lines.ts_ns.col.last(),
            _Lines.before.col.first().str.extract(_TOOL, 1).alias("tool"),
            text.str.strip_chars().str.join(" ").alias("exception"),
        )
        .join(chained.with_columns(chained=True), on=block, how="left", maintain_order="left")
    )
    chain = (~_Lines.chained.col.fill_null(value=False)).cum_sum().over("recording")
    named = StderrExceptions.exception.col.str.contains(_EXCEPTION)
    says_more = named & ~StderrExceptions.exception.col.str.contains(_MASK)
    return (
        exceptions.with_columns(chain=chain)
        .group_by("recording", "chain", maintain_order=True)
        .agg(
            _Lines.ts_ns.col.last(),
            StderrExceptions.tool.col.first(),
            StderrExceptions.exception.col.filter(says_more).reverse().unique(maintain_order=True),
        )
        .with_columns(StderrExceptions.exception.col.list.join("\n"))
        .filter(StderrExceptions.exception.col != "")
        .select(*StderrExceptions.columns())
    )


def _of_frames(lines: pl.DataFrame) -> pl.LazyFrame:
    """Return JavaScript and Java exceptions, whose names are on the line before the frames."""
    exception = _Lines.exception.col
    is_cause = exception.str.contains(_CAUSE)
    return (
        lines.lazy()
        .with_columns(
            first=_Lines.frame.col & ~_Lines.frame.col.shift(1, fill_value=False).over("recording"),
            exception=_earlier(1),
            before=_earlier(2),
        )
        .filter(_Lines.first.col & exception.str.contains(_NAMED_ERROR))
        .with_columns(exception.str.strip_chars())
        .with_columns(
            tool=pl.coalesce(pl.col("exception", "before").str.extract(_TOOL, 1)),
            chain=(~is_cause).cum_sum().over("recording"),
        )
        .group_by("recording", "chain", maintain_order=True)
        .agg(
            _Lines.ts_ns.col.last(),
            StderrExceptions.tool.col.first(),
            pl.coalesce(
                exception.str.replace(_CAUSE, "").str.extract(_UNPREFIXED, 1), exception
            ).unique(maintain_order=True),
        )
        .with_columns(exception.list.join("\n"))
        .select(*StderrExceptions.columns())
    )


def add_stderr_error(calls: pl.DataFrame, stderr: pl.DataFrame) -> pl.DataFrame:
    """Add `stderr_error` to calls: the exception whose trace was written while the call ran.

    A trace belongs to the next failed reply by the tool named in the line before the trace, or else
    to the last such reply within `LATE_NS` before the trace. Without such a reply, replies by all
    tools are searched in the same way, and finally results that are not marked as errors.

    Args:
        calls: calls with `recording`, `tool`, `ts_ns`, `reply_ns` and `outcome`.
        stderr: `StderrEvents` of the same recordings.
    """
    found = find_exceptions(stderr).with_row_index("number")
    if found.is_empty():
        return calls.with_columns(stderr_error=pl.lit(None, pl.String))
    calls = calls.with_row_index("call")
    of_recordings = _Lines.recording.col.is_in(
        found.get_column(StderrExceptions.recording.name).unique().implode()
    )
    replies = (
        calls.lazy()
        .select("call", "recording", "tool", "ts_ns", "reply_ns", "outcome")
        .filter(of_recordings)
        .drop_nulls("reply_ns")
        .sort("reply_ns", maintain_order=True)
        .pipe(run_query)
    )
    is_error = GatheredCalls.outcome.col.is_in(["tool_error", "protocol_error"])
    matched = []
    for candidates in (replies.filter(is_error), replies.filter(~is_error)):
        for keys in (["recording", "tool"], ["recording"]):
            named = found.drop_nulls(keys)
            if named.is_empty() or candidates.is_empty():
                continue
            owners = _owners(named, candidates, keys)
            matched.append(owners)
            found = found.join(owners, on="number", how="anti", maintain_order="left")
    if not matched:
        return calls.drop("call").with_columns(stderr_error=pl.lit(None, pl.String))
    by_call = (
        pl.concat(matched)
        .lazy()
        .sort("number")
        .group_by("call")
        .agg(stderr_error=StderrExceptions.exception.col.last())
        .pipe(run_query)
    )
    return left_join_columns(calls, by_call, "call").drop("call")


def _owners(found: pl.DataFrame, replies: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Find the calls to which exceptions belong; return `number`, `exception` and `call`.

    Args:
        found: exceptions without nulls in `keys`.
        replies: replies, ordered by time.
        keys: columns in which an exception and its call must be equal.
    """
    exceptions = found.lazy().rename({"ts_ns": "at"})
    calls = replies.lazy().select(*keys, "call", "reply_ns", "ts_ns").drop_nulls(keys)
    late = _Owned.at.col - _Owned.reply_ns.col
    parts = []
    for strategy in ("forward", "backward"):
        owner = (
            exceptions.join_asof(
                calls,
                left_on="at",
                right_on="reply_ns",
                by=keys,
                strategy=strategy,
                check_sortedness=False,
                coalesce=False,
            )
            .filter((GatheredCalls.ts_ns.col <= _Owned.at.col) & (late <= LATE_NS))
            .select("number", "exception", "call")
            .pipe(run_query)
        )
        parts.append(owner)
        exceptions = exceptions.join(owner.lazy(), on="number", how="anti", maintain_order="left")
    return pl.concat(parts)
