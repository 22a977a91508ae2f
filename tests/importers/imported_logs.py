"""Helpers for tests of imports: import a log, score it, and compare calls as rows."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from mcptally.importers import Imported, import_logs
from mcptally.pipeline.run import score

SAMPLES = Path(__file__).parent / "samples"
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


def facts(calls: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """The calls as rows of `FACTS`, in an order that does not depend on the recordings' ids."""
    columns = names or FACTS
    rows = calls.select(columns).rows()
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


def all_records_accounted_for(done: Imported) -> bool:
    """Whether every record of every source is counted."""
    return all(
        o.tally.seen == o.tally.used + o.tally.context.total() + o.tally.lost for o in done.files
    )
