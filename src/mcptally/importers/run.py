"""Converts other programs' logs to transcripts: `import_logs`.

Files are streamed, so memory does not grow with their size. Compressed files are subject to the
same limits as in an archive; all files of an import share a `transcript.files.DecompressionBudget`.
Every line, entry or row of a source is used or counted, and a report next to the transcript lists
the unused lines.
"""

import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.errors import UnreadableError, UsageError, near
from mcptally.importers.detect import TRANSCRIPT, detect_format, why_unknown
from mcptally.importers.items import Item, LineRuns, Tally
from mcptally.importers.packer import Packer
from mcptally.importers.registry import FORMATS, Format
from mcptally.importers.source import Envelope, Source
from mcptally.importers.timestamps import parse_timezone
from mcptally.importers.transcript_builder import TranscriptBuilder
from mcptally.redaction.policy import Policy, policy
from mcptally.transcript.discover import SkippedFile, files_below
from mcptally.transcript.files import DecompressionBudget, LineRun, read_lines
from mcptally.transcript.format import RECORDER
from mcptally.transcript.remote import not_found

__all__ = ["FORMATS", "Envelope", "Imported", "Outcome", "import_logs"]

AUTO: Final = "auto"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_SUFFIXES: Final = ("", ".gz", ".zst")


@dataclasses.dataclass(slots=True)
class Outcome:
    """The result of importing one file."""

    file: Path
    format: str
    tally: Tally
    more: list[Path] = dataclasses.field(default_factory=list)
    """Other files that were read together with this one."""
    recordings: int = 0
    events: dict[str, int] = dataclasses.field(default_factory=dict)
    written: list[Path] = dataclasses.field(default_factory=list)
    report: Path | None = None


@dataclasses.dataclass(slots=True)
class Imported:
    """The result of `import_logs`."""

    files: list[Outcome] = dataclasses.field(default_factory=list)
    passed_over: dict[Path, str] = dataclasses.field(default_factory=dict)
    """Maps files skipped in folders to the reasons: the format is unknown or was not requested, the
    entry is a link that leads out of the folder, or the name is not UTF-8."""

    @property
    def recordings(self) -> int:
        """Number of recordings written."""
        return sum(outcome.recordings for outcome in self.files)

    @property
    def events(self) -> int:
        """Number of events written, including `open` and `close`."""
        return sum(sum(outcome.events.values()) for outcome in self.files)

    @property
    def unused_lines(self) -> int:
        """Number of unused lines, entries and rows."""
        return sum(outcome.tally.unused_count for outcome in self.files)


def import_logs(
    paths: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    format: str = AUTO,  # noqa: A002  (the command's word)
    redaction: str = "default",
    timezone: str = "local",
    server: str | None = None,
    envelope: Envelope | None = None,
    progress: Callable[[Path, int], None] | None = None,
) -> Imported:
    """Convert other programs' logs to transcripts.

    Args:
        paths: files and folders; folders are read recursively.
        out: folder for transcripts and reports. Importing a file again replaces its transcripts.
        format: a name in `FORMATS`, or `auto` to detect each file's format.
        redaction: the redaction policy to apply.
        timezone: time zone assumed for times without one: `local`, `UTC`, `+02:00` or a name like
            `Europe/Berlin`.
        server: label for the servers, which overrides labels in the source.
        envelope: names of the fields in JSON-RPC lines.
        progress: called periodically with the file and the number of records read.

    Raises:
        UnreadableError: there are no files, or no file has a known format.
        UsageError: the format, policy or time zone does not exist, or a named file is a transcript.
    """
    if format != AUTO and format not in FORMATS:
        raise UsageError(
            f"no format is called {format!r}{near(format, FORMATS)}"
            f"; there are: {', '.join([AUTO, *FORMATS])}"
        )
    hide = policy(redaction)
    naive = parse_timezone(timezone)
    done = Imported()
    plan = list(_plan([paths] if isinstance(paths, (str, Path)) else paths, format, done))
    own = {
        (path.parent, path.name.removeprefix("mcp-server-").split(".log")[0])
        for path, _, form in plan
        if form.name == "claude-desktop" and path.name.startswith("mcp-server-")
    }
    room = DecompressionBudget()
    sources: dict[Format, list[Source]] = {}
    for path, name, form in plan:
        beside = frozenset(server for folder, server in own if folder == path.parent)
        source = Source(path, name, server=server, timezone=naive, room=room)
        source.envelope = envelope or Envelope()
        source.servers_with_own_log = beside
        sources.setdefault(form, []).append(source)
    done.files += (
        _file(source, form, Path(out), hide, timezone, progress)
        for form, some in sources.items()
        for source in form.related(some)
    )
    if not done.files:
        first = next(iter(done.passed_over.items()), None)
        raise UnreadableError(f"nothing to import{f': {first[0]}: {first[1]}' if first else ''}")
    return done


def _plan(
    paths: Iterable[str | Path], request: str, done: Imported
) -> Iterator[tuple[Path, str, Format]]:
    """Yield each file to read, with its name in the transcript and its format."""
    for root in map(Path, paths):
        if root.is_dir():
            left_out: list[SkippedFile] = []
            files = sorted(map(Path, files_below(root, left_out, ("",))))
            done.passed_over |= {Path(each.name): each.why for each in left_out}
            for path in files:
                if not path.name.endswith((".part", "-wal", "-shm")):
                    form = _of_folder(path, request, done)
                    if form is not None:
                        yield path, path.relative_to(root).as_posix(), form
        elif root.is_file():
            yield root, root.name, _named(root, request)
        else:
            raise not_found(root)


def _named(path: Path, request: str) -> Format:
    found = detect_format(path)
    if found == TRANSCRIPT and request != "jsonrpc":
        raise UsageError(f"{path}: is a transcript already; score it without importing")
    if request != AUTO:
        return FORMATS[request]
    if found is None:
        raise UnreadableError(
            f"{path}: unknown format: {why_unknown(path)}; if it is one of these, name it in place "
            f"of {AUTO}: {', '.join(FORMATS)}"
        )
    return FORMATS[found]


def _of_folder(path: Path, request: str, done: Imported) -> Format | None:
    if request != AUTO:
        patterns = [f"{p}{s}" for p in FORMATS[request].names for s in _SUFFIXES]
        if not any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns):
            done.passed_over[path] = f"its name is not one of {request}'s"
            return None
    try:
        found = detect_format(path)
    except UnreadableError as error:
        done.passed_over[path] = str(error)
        return None
    if found == TRANSCRIPT:
        done.passed_over[path] = "is a transcript already; score it without importing"
        return None
    if found is None or (request not in {AUTO, found}):
        done.passed_over[path] = f"format: {found}" if found else "unknown format"
        return None
    return FORMATS[found]


def _file(
    source: Source,
    form: Format,
    out: Path,
    hide: Policy,
    timezone: str,
    progress: Callable[[Path, int], None] | None,
) -> Outcome:
    stem = _stem(source, form)
    packer = Packer(out, stem)
    names = [each.name for each in (source, *source.more)]
    about = {
        "format": form.name,
        "file": hide.text(", ".join(names).encode(errors="replace"))[0].decode(errors="replace"),
        "faithful": "truncated"
        if form.cut and _has(source.preview(), form.cut.encode())
        else form.faithful,
        "missing": list(form.missing),
    }
    transcript = TranscriptBuilder(
        packer,
        hide,
        source=about,
        restarts=form.restarts,
        fingerprint=functools.partial(_fingerprint, source.preview(), hide),
        tally=source.tally,
    )
    try:
        items: Iterator[Item] = form.read(source)
        for number, item in enumerate(items if form.chronological else sorted_by_time(items)):
            transcript.put(item)
            if progress and not number % 10_000:
                progress(source.path, source.tally.seen)
        transcript.finish()
        written = packer.publish()
        for each in source.more:  # an earlier import may have read these files separately
            Packer(out, _stem(each, form)).publish()
            _report_path(out, _stem(each, form)).unlink(missing_ok=True)
    except BaseException:
        packer.discard()
        raise
    outcome = Outcome(
        source.path,
        form.name,
        source.tally,
        [each.path for each in source.more],
        transcript.recordings,
        dict(transcript.events),
        written,
    )
    outcome.report = _report_path(out, stem)
    _report(outcome, about, hide, timezone)
    return outcome


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Item).decode


def sorted_by_time(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items in chronological order; an item without a time follows its predecessor.

    Spans, calls and HTTP entries are logged when they end, but transcripts contain requests and
    replies in the order in which they were sent. Any number of items fit: they are sorted on disk.
    """
    with contextlib.closing(sqlite3.connect("")) as spool:  # "": a temporary file
        spool.execute("CREATE TABLE items (number INTEGER PRIMARY KEY, at INTEGER, item BLOB)")
        spool.executemany("INSERT INTO items (at, item) VALUES (?, ?)", _rows(items))
        for (item,) in spool.execute("SELECT item FROM items ORDER BY at, number"):
            yield _DECODE(item)


def _rows(items: Iterable[Item]) -> Iterator[tuple[int, bytes]]:
    last = 0
    for item in items:
        last = last if item.at is None else item.at
        yield last, _ENCODE(item)


def _stem(source: Source, form: Format) -> str:
    """Return the prefix of the names of a source's transcripts."""
    place = hashlib.blake2b(os.fsencode(source.path.resolve()), digest_size=4).hexdigest()
    label = _UNSAFE.sub("_", source.stem).strip("._")[:60] or "log"
    return f"{form.name}-{label}-{place}"


def _report_path(out: Path, stem: str) -> Path:
    return out / f"{stem}.report.json"


def _has(source: Source, words: bytes) -> bool:
    """Return whether a file contains `words`; False if `words` is empty."""
    if not words:
        return False
    tail = b""
    for piece in source.preview().read_pieces():
        if words in tail + piece:
            return True
        tail = piece[-len(words) :]
    return False


def _fingerprint(source: Source, hide: Policy) -> str:
    """Return a digest of a file's lines after redaction, so that it reveals no secret."""
    digest = hashlib.blake2b(digest_size=16)
    for each in (source, *source.more):
        for run in read_lines(each.path, room=source.room):
            if isinstance(run, LineRun):
                digest.update(hide.text(run.data)[0])
    return digest.hexdigest()


def _report(outcome: Outcome, about: dict[str, Any], hide: Policy, timezone: str) -> None:
    """Write a report next to the transcript that states which records of the source were used."""
    tally = outcome.tally

    def places(found: LineRuns) -> dict[str, Any]:
        return {"count": found.count, "lines": found.runs}

    said = {
        "recorder": RECORDER,
        "source": about,
        "timezone": timezone,
        "redaction": hide.name,
        "records": tally.seen,
        "used": tally.used,
        "context": dict(tally.context),
        "unused": {why: places(found) for why, found in tally.unused.items()},
        "notes": dict(tally.notes),
        "recordings": outcome.recordings,
        "events": outcome.events,
        "written": [path.name for path in outcome.written],
    }
    if outcome.report is not None:
        outcome.report.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = outcome.report.with_name(f"{outcome.report.name}.part")
        part.touch(mode=0o600)
        text = json.dumps(said, indent=1, ensure_ascii=False)
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(outcome.report)
