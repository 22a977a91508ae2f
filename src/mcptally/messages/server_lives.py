"""Determines how servers start and end in pipe recordings, and their last words.

HTTP recordings are skipped, because other programs start and stop their servers.
"""

from typing import Final

import polars as pl

from mcptally.messages.call_tables import PairedCalls
from mcptally.messages.decode import Events
from mcptally.messages.event_tables import Closes, Event, Opens, RawFrames, StderrEvents
from mcptally.tables.arrow import matches
from mcptally.tables.calls import MS_PER_NS, Calls
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.queries import run_query
from mcptally.tables.recordings import Recordings
from mcptally.tables.stages import GatheredCalls

LAST_LINES: Final = 400
"""Number of lines at the end of stderr that are searched for the reason why the server ended.
Node.js prints an exception's members after the message (250 lines for a connection of `pg`)."""

MAX_CHARS: Final = 300
"""Maximum number of characters kept of the line with the reason."""

PATIENCE_NS: Final = 5 * 10**9
"""Time in nanoseconds without an answer after which a server is considered `unanswered`."""

_MAX_READ: Final = 4_000
"""Maximum number of characters of a line that are read."""

_BY_OTHERS: Final = (1, 2, 9, 13, 15)
"""Signals with which other programs stop a server: SIGHUP, SIGINT, SIGKILL, SIGPIPE and SIGTERM."""

_PLAIN_EXITS: Final = (
    0,
    *(128 + signal for signal in _BY_OTHERS),
    *(-signal for signal in _BY_OTHERS),
)
"""Exit codes of servers that were asked to stop; some recorders write signal numbers as negative.
"""

_NOT_BY_ITSELF: Final = r"signal|client|stdin|stop|session|not_started"
"""Matches close reasons, as written by any recorder, that mean that the server did not exit by
itself."""

_NOT_WORDS: Final = (
    r"^(?:\W*|\s*at\s.*|\s*File \".*|Traceback .*|Node\.js v.*|\s*throw .*|\S*:\d+"
    r"|For further information .*|[\w$]+: .*,|\[Symbol\(.*)$"
)
"""Matches stderr lines that give no reason: stack trace lines, members of a printed object, and
lines without words."""

_EXCEPTION: Final = r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Exit)\b|^(?:Uncaught )?Error\b"
_LEVEL: Final = r"(?i)^\W*(?:[\w.:-]+\W+){0,3}(?:error|fatal|critical|panic)\b"
_WORDS: Final = (
    r"(?i)\b(?:not set|missing|required?|not found|cannot|can't|could not|unable|invalid|failed"
    r"|denied|refused|unknown|unrecognized|no such|must)\b"
)

_LOG_PREFIX: Final = (
    r"(?i)^\W*\d[\d:./, TZ+-]*\W+(?:critical|error|fatal|info|panic|warn(?:ing)?)\W+(?:[\w.:]+ - )?"
)
"""Matches the time, level and source at the start of a log line."""

_AT_SHUTDOWN: Final = r"KeyboardInterrupt|BrokenPipe|EPIPE|CancelledError|ClosedResourceError"
"""Matches exceptions that servers raise because the client disconnected."""

_CAUSES: Final = {
    "missing_program": r"(?i)\bcommand not found|: not found$|could not determine executable"
    r"|\b(?:cannot start|env|exec|sh|bash|open file)\b.*no such file or directory"
    r"|\benoent\b.*\bspawn\b|\bspawn\b.*\benoent\b|exec(?:utable)?(?: file)? not found"
    r"|no executable|404 not found",
    "broken_dependency": r"(?i)\bno module named|module_?not_?found|cannot find (?:module|package)"
    r"|importerror|cannot import name|does not provide an export|is not a (?:function|constructor)"
    r"|undefined symbol|could not locate the bindings|compiled against a different node"
    r"|cannot open shared object|classnotfound|noclassdeffound|nosuchmethod"
    r"|(?-i:module|type object|'[A-MO-Z]\w*' object).* has no attribute",
    "network": r"(?i)name or service not known|name resolution|nodename nor servname|no such host"
    r"|getaddrinfo|could not resolve host|\benotfound|\beai_again|(?:network|host) is unreachable"
    r"|\b(?:enet|ehost)unreach|no route to host|connection (?:attempts? )?(?:failed|timed out)"
    r"|\betimedout|max retries exceeded|fetch failed",
    "upstream": r"(?i)connection (?:was )?(?:refused|reset)|\beconn(?:refused|reset)"
    r"|\b50[234]\b.*(?:gateway|unavailable)",
    "misconfigured": r"(?i)\benv(?:ironment)?\b|\b(?:not |un)set\b|\bmust be (?:provided|set)\b"
    r"|\brequired?\b|\bmissing\b|\busage:|\bconfig|\bsettings\b|\bcredential|api[ _-]?key|\btoken\b"
    r"|\bpassword\b|(?:unknown|unrecogni[sz]ed) (?:command|cli|flag|key|option|param|setting|arg)"
    r"|invalid (?:option|argument)|\bplease (?:pass|provide|set|specify|supply)\b"
    r"|(?:permission|access) (?:is )?denied|\beacces\b|\beperm\b"
    r"|read-only|not write?able"
    r"|address already in use|eaddrinuse|unauthori[sz]ed|unsupported (?:engine|python|node)"
    r"|requires (?:python|node)|no such (?:option|file)|does not exist|not a directory"
    r"|^keyerror: '\w+'",
}
"""Maps causes of failed starts to patterns for the lines that give them, in order of precedence.
"""

_BUG: Final = (
    r"^(?:Uncaught )?(?:(?:Assertion|Attribute|Index|Name|NotImplemented|Reference|Syntax|Type)"
    r"Error\b|KeyError: '[^']*[a-z])"
)
"""Matches exceptions that bugs cause, even if their texts mention settings. `KeyError: 'API_KEY'`
is not a bug but a missing environment variable."""

_USAGE: Final = r"(?i)^usage(?::| of )"
"""Matches the line with which command-line parsers reject a program's arguments."""

_OVER_HTTP: Final = (
    r"(?i)\b(?:available|listening|running|serving|started|starting|transport|using)\b.*"
    r"(?:\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0|port):? ?\d|\[::1?\]:\d|http transport\b)"
)
"""Matches lines of a server that waits for clients on a port, not on stdin."""

_ARGUMENT: Final = r'"(?:--?[\w-]+=)?([^"\\-][^"\\]*[./:@_-][^"\\]*)"'
"""Matches arguments in a command line (as JSON) that are distinctive enough to be recognised in
text."""

_IMPORTER: Final = r" imported from .*"
"""Matches the end of a Node.js message about a missing package: the file, often the program itself,
that imports the package."""


class ServerLives(StageTable):
    """One row per pipe recording, with how its server started and ended."""

    recording = Recordings.recording
    start = Recordings.start
    ready_ms = Recordings.ready_ms
    crash = Recordings.crash
    ended_by = Recordings.ended_by
    last_words = Recordings.last_words
    start_failure = Recordings.start_failure
    noise_lines = Recordings.noise_lines


class _Ends(StageTable):
    """One row per pipe recording, with facts about its end."""

    opened_ns = Column(pl.Int64, "Time of the first event.", "ns")
    ended_ns = Column(
        pl.Int64, "Time of the last event: nothing follows if the recorder died.", "ns"
    )
    open = Column(pl.Boolean, "Whether a request of the client got no reply, not even an error.")
    answered_ns = Column(pl.Int64, "Time of the server's first answer.", "ns")
    used = Column(pl.Boolean, "Whether a tool was called, with or without an answer.")
    waiting = Column(pl.Boolean, "Whether a request was open at the end.")
    failed = Column(pl.Boolean, "Whether the exit code or signal is that of a failure.")
    shutdown = Column(pl.Boolean, "Whether its last words are those of a server without client.")
    shows_usage = Column(pl.Boolean, "Whether it said how its program is used.")
    names_argument = Column(
        pl.Boolean, "Whether its last words contain an argument of its command line."
    )


class _Explanation(StageTable):
    """What a server that ended badly said, and how it started."""

    start = ServerLives.start
    last_words = ServerLives.last_words
    start_failure = ServerLives.start_failure
    shutdown = _Ends.shutdown


_IS_NOISE: Final = (RawFrames.dir.col == "s2c") & (RawFrames.why.col != "too_large")
"""Whether a raw frame is a line on stdout that is not MCP."""


def server_lives(events: Events, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the `ServerLives` table.

    Args:
        events: the decoded events.
        calls: `PairedCalls` with the columns that `evidence.add_recording_end` adds.
    """
    is_pipe = events.opens.get_column(Opens.transport.name) == "stdio"
    if not is_pipe.any():
        return ServerLives.empty()
    pipes = (
        events.opens.lazy()
        .filter(is_pipe)
        .group_by(Event.recording.name)
        .agg(Event.ts_ns.col.min().alias(_Ends.opened_ns.name), Opens.command.col.first())
    )
    ends = (
        events.closes.lazy()
        .sort(Event.seq.name)
        .group_by(Event.recording.name)
        .agg(pl.col(*_OF_CLOSE).last())
        .with_columns(Closes.signal.col.cast(pl.Int64, strict=False))
    )
    every = (events.messages, events.raws, events.stderr, events.closes)
    last = (
        pl.concat([part.lazy().select(Event.recording.name, Event.ts_ns.name) for part in every])
        .group_by(Event.recording.name)
        .agg(Event.ts_ns.col.max().alias(_Ends.ended_ns.name))
    )
    asked = (
        calls.lazy()
        .filter(PairedCalls.dir.col == "c2s")
        .group_by(Event.recording.name)
        .agg(
            PairedCalls.reply_ns.col.is_null().any().alias(_Ends.open.name),
            # A server may reject an unsupported protocol era with an error before the handshake.
            PairedCalls.reply_ns.col.filter(~PairedCalls.error_reply.col)
            .min()
            .alias(_Ends.answered_ns.name),
            (PairedCalls.method.col == "tools/call").any().alias(_Ends.used.name),
            GatheredCalls.closed.col.fill_null(value=False).any().alias(_Ends.waiting.name),
        )
    )
    noise = (
        events.raws.lazy()
        .filter(_IS_NOISE)
        .group_by(Event.recording.name)
        .agg(pl.len().alias(ServerLives.noise_lines.name))
    )
    rows = pipes
    for part in (ends, last, asked, noise):
        rows = rows.join(part, on=Event.recording.name, how="left")
    reason, exit_code, signal = Closes.reason.col, Closes.exit_code.col, Closes.signal.col
    by_itself = ~reason.str.contains(_NOT_BY_ITSELF).fill_null(value=False)
    quit_early = (reason == "server_quit").fill_null(value=False)
    failed = quit_early | (
        ~exit_code.is_in(_PLAIN_EXITS) & by_itself
        | ~signal.is_in(_BY_OTHERS) & (reason == "server_killed")
    ).fill_null(value=False)
    never_ran = (reason == "not_started").fill_null(value=False)
    servers = rows.with_columns(failed.alias(_Ends.failed.name)).pipe(run_query)
    ended_badly = _Ends.failed.col | _Ends.answered_ns.col.is_null() | never_ran
    bad = servers.filter(ended_badly)
    # Compiling the patterns takes longer than matching them, and most servers end well.
    explained = _explained(bad, events) if bad.height else _Explanation.empty()
    others = servers.filter(~ended_badly).with_columns(
        pl.lit("ready").alias(ServerLives.start.name)
    )
    start, is_failed, words = ServerLives.start.col, _Ends.failed.col, ServerLives.last_words.col
    says_why = start.is_in(["failed", "unanswered"]) | is_failed
    crash = (
        pl.when(ServerLives.start_failure.col == "crashed")
        .then(pl.lit("start"))
        .when(is_failed & (start == "ready") & _Ends.waiting.col.fill_null(value=False))
        .then(pl.lit("call"))
        .when(
            is_failed & ~quit_early & ~_Ends.shutdown.col & (start == "ready") & words.is_not_null()
        )
        .then(pl.lit("idle"))
    )
    ended_by = (
        pl.when(quit_early)
        .then(pl.lit("server"))
        .when(reason.is_in(["signalled", "client_gone"]) | exit_code.is_in(_PLAIN_EXITS))
        .then(pl.lit("client"))
        .when(is_failed & ~_Ends.shutdown.col)
        .then(pl.lit("server"))
    )
    lives: pl.DataFrame = pl.concat([explained, others], how="diagonal")
    return lives.select(
        Event.recording.col,
        start,
        ((_Ends.answered_ns.col - _Ends.opened_ns.col) * MS_PER_NS).alias(
            ServerLives.ready_ms.name
        ),
        crash.alias(ServerLives.crash.name),
        ended_by.alias(ServerLives.ended_by.name),
        pl.when(says_why).then(words).alias(ServerLives.last_words.name),
        ServerLives.start_failure.col,
        ServerLives.noise_lines.col.fill_null(0),
    )


def _explained(rows: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Add `start`, `last_words`, `shutdown` and `start_failure` to servers that ended badly."""
    ended = rows.lazy().select(Event.recording.name, _Ends.answered_ns.name)
    words = pl.coalesce(ServerLives.last_words.col, Closes.detail.col)
    line = (Event.recording.name, Event.seq.name, StderrEvents.text.name)
    noise = events.raws.lazy().filter(_IS_NOISE)
    said = pl.concat([events.stderr.lazy().select(line), noise.select(line)])
    last_words = _last_words(said.join(ended, on=Event.recording.name))
    found = (
        rows.lazy()
        .join(last_words, on=Event.recording.name, how="left")
        .with_columns(
            words.alias(ServerLives.last_words.name),
            matches(words, _AT_SHUTDOWN).fill_null(value=False).alias(_Ends.shutdown.name),
        )
    )
    # A server that answered nothing and exited with an error did not exit because the client
    # disconnected.
    failed_start = (
        _Ends.answered_ns.col.is_null()
        & _Ends.open.col
        & (Closes.reason.col != "not_started")
        & ~Closes.exit_code.col.is_in(_PLAIN_EXITS)
        & ~_Ends.shutdown.col
        & ServerLives.last_words.col.is_not_null()
    ).fill_null(value=False)
    argument = Opens.command.col.str.extract_all(_ARGUMENT)
    names_argument = (
        found.select(Event.recording.name, ServerLives.last_words.name, argument)
        .explode(Opens.command.name, empty_as_null=False)
        .filter(
            ServerLives.last_words.col.str.replace(_IMPORTER, "").str.contains(
                Opens.command.col.str.extract(_ARGUMENT), literal=True
            )
        )
        .select(Event.recording.name, pl.lit(value=True).alias(_Ends.names_argument.name))
        .unique()
    )
    return (
        found.join(names_argument, on=Event.recording.name, how="left")
        .with_columns(_Ends.failed.col | failed_start)
        .with_columns(_start().alias(ServerLives.start.name))
        .with_columns(_failure().alias(ServerLives.start_failure.name))
        .pipe(run_query)
    )


_OF_CLOSE: Final = tuple(
    column.name for column in (Closes.reason, Closes.exit_code, Closes.signal, Closes.detail)
)


def _start() -> pl.Expr:
    """Return an expression for how the server started.

    The start did not fail if every request got a reply.
    """
    never_ran = Closes.reason.col == "not_started"
    return (
        pl.when(never_ran.fill_null(value=False))
        .then(pl.lit("failed"))
        .when(_Ends.answered_ns.col.is_not_null() | _Ends.used.col)
        .then(pl.lit("ready"))
        .when(_Ends.failed.col)
        .then(pl.lit("failed"))
        .when(_Ends.open.col & (_Ends.ended_ns.col - _Ends.opened_ns.col >= PATIENCE_NS))
        .then(pl.lit("unanswered"))
        .otherwise(pl.lit("unused"))
    )


def _last_words(lines: pl.LazyFrame) -> pl.LazyFrame:
    """Return, for each recording, the line that probably explains why the server exited."""
    text = StderrEvents.text.col
    unanswered = _Ends.answered_ns.col.is_null()
    last = (
        lines.sort(Event.recording.name, Event.seq.name)
        .group_by(Event.recording.name, maintain_order=True)
        .tail(LAST_LINES)
        .select(
            Event.recording.name,
            Event.seq.name,
            # Remove the boxes that rich and exception groups draw around text.
            text.str.strip_chars("| \t\r\n").str.head(_MAX_READ),
            unanswered.alias("unanswered"),
        )
        .pipe(run_query)
    )
    weight = (
        pl.when(matches(text, _EXCEPTION))
        .then(3)
        .when(matches(text, _LEVEL))
        .then(2)
        .when(matches(text, _WORDS) | (pl.col("unanswered") & matches(text, _OVER_HTTP)))
        .then(1)
        .otherwise(0)
    )
    # A server that cannot start may log the cause before the final exception.
    names_cause = _cause(pl.when("unanswered", pl.col("weight") > 1).then(text)).is_not_null()
    # Servers repeat their texts, of which some are long.
    weights = (
        last.lazy()
        .select(StderrEvents.text.name, "unanswered")
        .unique()
        .filter(~matches(text, _NOT_WORDS))
        .with_columns(weight.alias("weight"))
        .with_columns(pl.when(names_cause).then(4).otherwise("weight").alias("weight"))
    )
    return (
        last.lazy()
        .join(weights, on=[StderrEvents.text.name, "unanswered"])
        .sort("weight", Event.seq.name)
        .group_by(Event.recording.name)
        .agg(
            text.last()
            .str.replace(_LOG_PREFIX, "")
            .str.slice(0, MAX_CHARS)
            .alias(ServerLives.last_words.name),
            matches(text, _USAGE).any().alias(_Ends.shows_usage.name),
        )
    )


def _cause(line: pl.Expr) -> pl.Expr:
    """Return an expression for the cause that a line gives for a failed start; null if none."""
    cause = pl.coalesce(
        pl.when(matches(line, pattern)).then(pl.lit(name)) for name, pattern in _CAUSES.items()
    )
    return pl.when(~matches(line, _BUG) | (cause == "broken_dependency")).then(cause)


def _failure() -> pl.Expr:
    """Return an expression for why the start failed, according to the last words."""
    words = ServerLives.last_words.col
    return pl.when(ServerLives.start.col.is_in(["failed", "unanswered"])).then(
        pl.when(Closes.reason.col == "not_started")
        .then(
            pl.when(words.str.contains("(?i)permission denied"))
            .then(pl.lit("misconfigured"))
            .otherwise(pl.lit("missing_program"))
        )
        .when(Closes.exit_code.col.is_in([126, 127]))
        .then(pl.lit("missing_program"))
        .when(_Ends.names_argument.col & matches(words, _WORDS))
        .then(pl.lit("misconfigured"))
        .when(_cause(words).is_not_null())
        .then(_cause(words))
        .when(
            _Ends.shows_usage.col
            | (ServerLives.start.col == "unanswered") & matches(words, _OVER_HTTP)
        )
        .then(pl.lit("misconfigured"))
        .when((ServerLives.start.col == "unanswered") | (Closes.reason.col == "server_quit"))
        .then(pl.lit("no_answer"))
        .otherwise(pl.lit("crashed"))
    )


def failed_requests(calls: pl.DataFrame) -> pl.LazyFrame:
    """Return the columns of `Recordings` about requests that a crash left open or that probe.

    Args:
        calls: rows of `Calls`.
    """
    probes, crashed = Calls.method.col == "server/discover", Calls.reason.col == "server_crash"
    in_call = (crashed & (Calls.method.col == "tools/call")).any()
    first = {
        Recordings.crash_method.name: Calls.method.col,
        Recordings.crash_call_id.name: Calls.call_id.col,
    }
    return (
        calls.lazy()
        .filter(Calls.failure_kind.col.is_not_null() & (probes | crashed))
        .sort(Calls.requested_at.name, Calls.call_id.name, nulls_last=True)
        .group_by(Calls.recording.name)
        .agg(
            probes.any().alias(Recordings.probe_failed.name),
            **{
                name: pl.when(~in_call).then(column.filter(crashed).first())
                for name, column in first.items()
            },
        )
    )
