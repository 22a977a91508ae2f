"""Selects the part of an archive to score, by server, tool and time.

Files without a selected event are left out before decoding, after a search of their bytes for
`open` events and times. In the remaining files, unselected recordings and calls are left out only
after decoding and pairing, so that a session's state (its client, its definitions) is known.
"""

import concurrent.futures
import datetime
import itertools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import polars as pl

from mcptally.analytics.filters import Filters, Moment
from mcptally.errors import McptallyError
from mcptally.messages.decode import Events
from mcptally.messages.event_tables import Opens
from mcptally.pipeline.plan import first_recording
from mcptally.tables.stages import GatheredCalls
from mcptally.transcript.discover import path_of
from mcptally.transcript.files import Damage, read_lines

_OPEN: Final = re.compile(rb'"event"\s*:\s*"open"')
_TIME: Final = re.compile(rb'"ts_ns"\s*:\s*(\d{1,19})')


class Selection(msgspec.Struct, frozen=True):
    """The part of an archive that is scored; by default, the whole archive."""

    servers: tuple[str, ...] = ()
    """Labels of the selected servers; empty for all servers."""
    tools: tuple[str, ...] = ()
    """Names of the tools whose calls are selected; empty for all tools and methods."""
    since: datetime.datetime | None = None
    """Only calls made at or after this time are selected."""
    until: datetime.datetime | None = None
    """Only calls made before this time are selected."""

    @classmethod
    def of(
        cls,
        *,
        servers: Collection[str] = (),
        tools: Collection[str] = (),
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Self:
        """Build a selection from names and times; see `Store.ask` for formats of times.

        Raises:
            UsageError: a time cannot be parsed, or `until` is not after `since`.
        """
        times: dict[str, Any] = Filters(since=since, until=until).given()
        return cls(tuple(sorted(set(servers))), tuple(sorted(set(tools))), **times)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Return the selection with which the store that has this manifest was made."""
        kept = manifest.get("selection") or {}
        times = {
            name: datetime.datetime.fromisoformat(kept[name])
            for name in ("since", "until")
            if kept.get(name)
        }
        return cls(tuple(kept.get("servers", ())), tuple(kept.get("tools", ())), **times)

    def for_manifest(self) -> dict[str, Any] | None:
        """Return the selection as JSON members for the manifest; None for the whole archive."""
        if not self:
            return None
        return {
            "servers": list(self.servers),
            "tools": list(self.tools),
            "since": self.since and self.since.isoformat(),
            "until": self.until and self.until.isoformat(),
        }

    def __bool__(self) -> bool:
        """Return whether the selection excludes anything."""
        return self != Selection()

    @property
    def leaves_out_evidence(self) -> bool:
        """Whether a store may lack recordings of its servers: those without a selected call.

        Their calls are evidence all the same, which can only be replaced by reading all files.
        """
        return bool(self.tools or self.since or self.until)

    def in_words(self) -> str:
        """Describe the selection, for example as `server git, since 2026-11-21 00:00 UTC`."""
        parts = [f"server {', '.join(self.servers)}"] if self.servers else []
        parts += [f"tool {', '.join(self.tools)}"] if self.tools else []
        parts += [
            f"{name} {time.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
            for name, time in (("since", self.since), ("until", self.until))
            if time is not None
        ]
        return ", ".join(parts)

    def files(self, files: Sequence[str | Path]) -> tuple[list[str | Path], set[str]]:
        """Return the files that may contain selected calls, and the server labels in other files.

        A file that cannot be read is returned too, so that scoring reports it.
        """
        if not (self.servers or self.since or self.until):
            return list(files), set()
        # Threads run concurrently in zstd, gzip and file reads.
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            looks = list(pool.map(self._look, map(path_of, files)))
        may_hold = [may for may, _ in looks]
        # Keep the other segments of a recording, because they contain the state of its sessions.
        if self.since or self.until:
            recordings = [first_recording(path_of(file)) for file in files]
            chosen = set(itertools.compress(recordings, may_hold)) - {None}
            may_hold = [
                may or name in chosen for may, name in zip(may_hold, recordings, strict=True)
            ]
        labels = {label for may, found in looks if not may for label in found}
        return list(itertools.compress(files, may_hold)), labels

    def _look(self, path: Path) -> tuple[bool, set[str]]:
        """Return whether a file may contain selected calls, and the server labels found in it."""
        has_server, has_late, has_early = not self.servers, self.since is None, self.until is None
        labels: set[str] = set()
        try:
            for run in read_lines(path):
                if isinstance(run, Damage):
                    return True, labels
                if not has_server:
                    labels |= _labels(run.data)
                    has_server = not labels.isdisjoint(self.servers)
                if not (has_late and has_early):
                    times = [int(time) for time in _TIME.findall(run.data)]
                    has_late |= self.since is None or max(times, default=0) >= _ns(self.since)
                    has_early |= self.until is None or min(times, default=0) < _ns(self.until)
                if has_server and has_late and has_early:
                    return True, labels
        except McptallyError:
            return True, labels
        return False, labels

    def events(self, events: Events) -> Events:
        """Keep only the events of recordings whose `open` events name a selected server."""
        if not self.servers:
            return events
        chosen = (
            events.opens.filter(Opens.server.col.is_in(self.servers)).select("recording").unique()
        )
        return msgspec.structs.replace(
            events,
            **{
                name: getattr(events, name).join(
                    chosen, on="recording", how="semi", maintain_order="left"
                )
                for name in _BY_RECORDING
            },
        )

    def calls(self) -> pl.Expr:
        """Return an expression that is true if a call is selected.

        With `since` or `until`, calls with an unknown time are not selected.
        """
        chosen = pl.lit(value=True)
        if self.tools:
            chosen &= GatheredCalls.tool.col.is_in(self.tools).fill_null(value=False)
        if self.since is not None or self.until is not None:
            chosen &= GatheredCalls.ts_ns.col > 0
        if self.since is not None:
            chosen &= GatheredCalls.ts_ns.col >= _ns(self.since)
        if self.until is not None:
            chosen &= GatheredCalls.ts_ns.col < _ns(self.until)
        return chosen


EVERYTHING: Final = Selection()

_BY_RECORDING: Final = ("messages", "raws", "http", "opens", "closes", "gaps", "stderr")
"""Fields of `Events` whose rows each belong to a recording."""


class _Open(msgspec.Struct):
    event: str = ""
    server: str | None = None


def _labels(lines: bytes) -> set[str]:
    """Return the server labels in the `open` events among some lines.

    Each line is decoded, because `"event":"open"` may also occur in a payload.
    """
    found: set[str] = set()
    for place in _OPEN.finditer(lines):
        start = lines.rfind(b"\n", 0, place.start()) + 1
        end = lines.find(b"\n", place.end())
        try:
            event = msgspec.json.decode(lines[start : None if end < 0 else end], type=_Open)
        except (ValueError, RecursionError):
            continue
        if event.event == "open" and event.server is not None:
            found.add(event.server)
    return found


def _ns(time: datetime.datetime) -> int:
    """Convert a time to nanoseconds since 1970."""
    return int((time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) / _MICROSECOND) * 1000


_MICROSECOND: Final = datetime.timedelta(microseconds=1)
