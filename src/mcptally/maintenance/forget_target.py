"""Finds the data of a server, a tool or a recording in a store: what `forget` removes."""

from pathlib import Path
from typing import Final

import polars as pl

from mcptally.errors import QueryError, near
from mcptally.maintenance.erase_transcripts import EraseTarget, messages_naming
from mcptally.pipeline.incremental import EarlierStores
from mcptally.store.manifest import SUMMARIES, LiveFiles
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.validations import Validations

_CONTENTLESS: Final = (
    *("notifications/initialized", "notifications/tools/list_changed"),
    *("notifications/prompts/list_changed", "notifications/resources/list_changed"),
    "notifications/roots/list_changed",
)
"""Notifications that belong to no call and have no content."""


def find_target(
    files: LiveFiles,
    earlier: EarlierStores,
    *,
    server: str | None,
    tool: str | None,
    recording: str | None,
) -> tuple[EraseTarget, int]:
    """The target that the names stand for, and its number of calls."""
    recordings = _read(files, Recordings.name, "recording", "server")
    calls = _read(files, Calls.name, *_CALL_COLUMNS)
    for column, name in (("server", server), ("recording", recording)):
        if name is not None:
            _require(recordings, column, name)
            recordings = recordings.filter(pl.col(column) == name)
    calls = calls.join(recordings.select("recording"), on="recording", how="semi")
    if tool is None:
        return EraseTarget(
            whole=set(recordings.get_column(Recordings.recording.name))
        ), calls.height
    return _tool_target(files, earlier, tool, recordings.select("recording"), calls)


def files_with_duplicates(files: LiveFiles, recordings: set[str]) -> set[str]:
    """The transcripts with duplicates of these recordings' events, which have no rows."""
    findings = _read(files, Findings.name, "rule", "recording", "file")
    return set(
        findings.filter(
            Findings.rule.col == "archive.duplicate_events",
            Recordings.recording.col.is_in(list(recordings)),
        )["file"].drop_nulls()
    )


_CALL_COLUMNS: Final = (
    *("call_id", "recording", "seq", "session", "dir", "method", "tool", "attempt_of"),
)


def _read(files: LiveFiles, table: str, *columns: str) -> pl.DataFrame:
    return pl.read_parquet(files[table], columns=list(columns), glob=False)


def _require(frame: pl.DataFrame, column: str, name: str) -> None:
    names = [each for each in frame.get_column(column).unique() if each is not None]
    if name not in names:
        some = f"; there are: {', '.join(sorted(names)[:8])}{', …' if len(names) > 8 else ''}"
        raise QueryError(f"no {column} is called {name!r}{near(name, names) or some}")


def _tool_target(
    files: LiveFiles,
    earlier: EarlierStores,
    tool: str,
    recordings: pl.DataFrame,
    calls: pl.DataFrame,
) -> tuple[EraseTarget, int]:
    """The target for a tool in these recordings, and the number of the tool's calls.

    The target has:

    - the tool's calls with their replies, progress, cancellations, continuations and tasks;
    - validations of its arguments;
    - requests of the server, and their replies, while one of its calls was open;
    - from its first call in a recording on: stderr, frames that are not JSON, and messages without
      a call, such as logs;
    - its definition in every listing;
    - completions and other events without a call that name it.
    """
    listed = pl.concat(
        [pl.DataFrame(schema={"recording": pl.String, "tool": pl.String})]
        + [
            pl.read_parquet(path, columns=["recording", "tool"], glob=False)
            for path in files.get(f"{SUMMARIES}/listed", ())
        ]
    ).join(recordings, on="recording", how="semi")
    _require(pl.concat([listed, calls.select("recording", "tool")]), "tool", tool)
    own = _calls_of_tool(files, tool, calls)
    all_messages = _read(files, Messages.name, *_MESSAGE_COLUMNS)
    messages = all_messages.join(own.select("recording").unique(), on="recording", how="semi")
    spans = (
        messages.join(own.select("call_id"), on="call_id", how="semi")
        .group_by("call_id", "recording")
        .agg(first=Messages.seq.col.min(), last=Messages.seq.col.max())
    )
    in_recordings = pl.concat(
        [listed.filter(tool=tool)["recording"], own.get_column(Calls.recording.name)]
    )
    completions = calls.filter(
        Messages.method.col == "completion/complete",
        Recordings.recording.col.is_in(in_recordings.implode()),
    )
    removed_calls = pl.concat(
        [
            own.select("call_id"),
            _requests_during(spans, calls),
            _naming(earlier, tool, all_messages.join(completions, on="call_id", how="semi")),
        ]
    ).unique()
    removed = all_messages.join(removed_calls, on="call_id", how="semi").select(
        "recording", "seq", "index"
    )
    begins = dict(spans.group_by("recording").agg(pl.col("first").min()).iter_rows())
    stray = Messages.call_id.col.is_null() & ~Messages.method.col.is_in(_CONTENTLESS).fill_null(
        value=False
    )
    since = Recordings.recording.col.replace_strict(begins, default=None, return_dtype=pl.Int64)
    strays = messages.filter(stray, Messages.seq.col > since)
    target = EraseTarget(
        callless_after=begins,
        tool=tool,
        listing=set(listed.filter(tool=tool).get_column(Recordings.recording.name)) | set(begins),
    )
    for name, seq, index in pl.concat([removed, strays.select(removed.columns)]).iter_rows():
        target.members.setdefault(name, {}).setdefault(seq, set()).add(index)
    return target, own.height


def _calls_of_tool(files: LiveFiles, tool: str, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls to a tool and the validations of its arguments, with all their attempts."""
    validations = _read(files, Validations.name, "call_id", "tool").filter(tool=tool)
    own = calls.filter(
        (Findings.tool.col == tool)
        | Messages.call_id.col.is_in(validations.get_column(Messages.call_id.name).implode())
    )
    return calls.join(own.select("attempt_of").unique(), on="attempt_of", how="semi")


def _requests_during(spans: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The `call_id` of the server's requests while one of the calls in `spans` was open."""
    # The last message of any call that began until then; a call without a reply never ends.
    reach = pl.when(pl.col("last") > pl.col("first")).then("last").otherwise(2**63 - 1)
    reached = spans.sort("first").select(
        "recording", "first", reach=reach.cum_max().over("recording")
    )
    return (
        calls.filter(Calls.dir.col == "s2c")
        .sort("seq")
        .join_asof(
            reached,
            left_on="seq",
            right_on="first",
            by="recording",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .filter(Messages.seq.col < pl.col("reach"))
        .select("call_id")
    )


_MESSAGE_COLUMNS: Final = ("recording", "seq", "index", "session", "dir", "method", "call_id")


def _naming(earlier: EarlierStores, tool: str, messages: pl.DataFrame) -> pl.DataFrame:
    """The `call_id` of each call with a message in `messages` that names the tool."""
    places = set(messages.select("recording", "seq").iter_rows())
    files = earlier.files_of(messages.get_column(Recordings.recording.name).unique())
    found = [
        place
        for path in sorted(map(Path, files))
        if places and path.is_file()
        for place in messages_naming(path, tool, places)
    ]
    schema = {name: messages.schema[name] for name in ("recording", "seq", "index")}
    named = pl.DataFrame(found, schema=schema, orient="row")
    return messages.join(named, on=["recording", "seq", "index"], how="semi").select("call_id")
