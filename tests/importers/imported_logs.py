"""Helpers for tests of imports: import a log, score it, and compare calls as rows."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import zstandard

from mcptally.importers import Imported, import_logs
from mcptally.pipeline.run import score

SAMPLES = Path(__file__).parent / "samples"
WRITTEN = Path(__file__).parent / "logs"
"""Short logs that were written by hand in the formats of the programs."""
TRACES = Path(__file__).parents[2] / "sample_traces"

FACTS = (
    *("dir", "method", "tool", "resource_uri", "prompt", "arguments", "outcome", "error_code"),
    *("error_text", "verdict", "reason", "fault", "retryable", "rule", "hidden_rule"),
    *("content_types", "has_structured_content", "response_tokens", "protocol_version"),
    *("server_name", "client", "input_schema_state", "output_schema_state"),
)
"""Columns of `calls` that do not depend on time and file."""


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a transcript, or of all transcripts in a folder."""
    files = sorted(path.glob("*.jsonl.zst")) if path.is_dir() else [path]
    found = []
    for file in files:
        data = file.read_bytes()
        if file.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as all_:
                data = all_.read()
        found += [json.loads(line) for line in data.split(b"\n") if line]
    return found


def import_and_read(
    source: Path, tmp_path: Path, **options: Any
) -> tuple[Imported, list[dict[str, Any]]]:
    """Import one source; return the result and the events written."""
    out = tmp_path / "transcripts"
    done = import_logs(source, out, **options)
    return done, events(out)


def calls_of(archive: Path, store: Path) -> pl.DataFrame:
    """The `calls` table of an archive."""
    score(archive, out=store)
    return pl.read_parquet(store / "calls" / "*.parquet").sort("recording", "seq", "index")


class Logs:
    """Logs that a module's tests import, scored as one archive.

    Their servers and sessions need different names: recordings of one name would be one recording,
    and calls to one server are judged together.
    """

    def __init__(self) -> None:
        self._sources: list[tuple[str, Path | str | bytes, dict[str, Any]]] = []

    def add(self, name: str, source: Path | str | bytes, **options: Any) -> int:
        """Add a file with its content, or the path of a file, and return its number.

        Args:
            name: path of the file below a folder of its own.
            source: its text or bytes, or a file to copy.
            options: those of `import_logs`; a transcript is not imported with `as_recorded=True`.
        """
        self._sources.append((name, source, options))
        return len(self._sources) - 1

    def import_and_score(self, folder: Path) -> list["ImportedLog"]:
        """Import and score the logs, and return them in the order in which they were added."""
        archive, done = folder / "archive", []
        for number, (name, source, options) in enumerate(self._sources):
            path = folder / str(number) / name
            path.parent.mkdir(parents=True)
            data = source.read_bytes() if isinstance(source, Path) else source
            path.write_bytes(data.encode() if isinstance(data, str) else data)
            out = archive / str(number)
            if options.get("as_recorded"):
                shutil.copytree(path.parent, out)
                done.append(None)
            else:
                done.append(import_logs(path, out, **options))
        calls = calls_of(archive, folder / "store")
        findings = pl.read_parquet(folder / "store" / "findings" / "*.parquet")
        return [
            ImportedLog(
                each,
                events(archive / str(number)) if each else [],
                *(
                    t.filter(pl.col("file").str.contains(f"archive/{number}/", literal=True))
                    for t in (calls, findings)
                ),
            )
            for number, each in enumerate(done)
        ]


class ImportedLog(NamedTuple):
    """The result of importing one log."""

    done: Imported | None
    """How the import went; None for a transcript."""
    events: list[dict[str, Any]]
    calls: pl.DataFrame
    findings: pl.DataFrame


def facts(calls: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Return the calls as rows of `FACTS`, in an order independent of the recordings' ids."""
    columns = names or FACTS
    rows = calls.select(columns).rows()
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


def all_records_accounted_for(done: Imported) -> bool:
    """Return whether every record of every source is counted."""
    return all(
        o.tally.seen == o.tally.used + o.tally.context.total() + o.tally.unused_count
        for o in done.files
    )
