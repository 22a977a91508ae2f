"""`mcptally.score` in a user's script, where polars has several threads (the command sets one).

With several threads the columns of a frame come in chunks of different lengths, some of them empty.
"""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests import corpus
from tests.benchmarks.archive import multiply
from tests.transcripts import call, exchange, opened, request, result, text, write

ROOT = Path(__file__).resolve().parents[2]
MB = 1_000_000

SCRIPT = """
import sys
import mcptally

archive, store, *sizes = sys.argv[1:]
for size in sizes:
    rows = mcptally.score(archive, out=store, full=True, partition_bytes=int(size)).rows
    print(sorted(rows.items()))
"""


def score(archive: Path, store: Path, *sizes: int, threads: int | None = None) -> list[str]:
    """The numbers of rows that a script prints for each partition size.

    `threads` is polars' number of threads; by default polars chooses.
    """
    environment = {k: v for k, v in os.environ.items() if k != "POLARS_MAX_THREADS"}
    if threads:
        environment["POLARS_MAX_THREADS"] = str(threads)
    command = [sys.executable, "-c", SCRIPT, str(archive), str(store), *map(str, sizes)]
    ran = subprocess.run(
        command, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=None
    )
    assert ran.returncode == 0
    return ran.stdout.splitlines()


@pytest.mark.slow
def test_a_rule_that_only_later_calls_break_is_applied_with_several_threads(tmp_path: Path):
    handshake = {"protocolVersion": "2025-03-26", "capabilities": {}}
    about = {"clientInfo": {"name": "c", "version": "1"}} | handshake
    server = {"serverInfo": {"name": "s", "version": "1"}} | handshake
    messages = [request(0, "initialize", **about), result(0, **server)]
    messages.append({"jsonrpc": "2.0", "method": "notifications/initialized"})
    # A join makes a chunk of `revision` per 256 calls; calls with a finding are in the last only.
    for number in range(1, 601):
        new = {"structuredContent": {"a": 1}} if number > 560 else {}
        messages += [call(number), text(number, **new)]
    write(tmp_path / "a.jsonl", [opened(), *exchange(*messages)])
    score(tmp_path, tmp_path / "store", 120 * MB, threads=4)
    findings = pl.read_parquet(tmp_path / "store" / "findings" / "*.parquet")
    too_new = findings.filter(pl.col("rule") == "protocol.too_new")
    assert too_new.height == 40
    assert set(too_new["message"]) == {
        "structuredContent was added in 2025-06-18; the session uses 2025-03-26"
    }


@pytest.fixture
def twenty_megabytes() -> Iterator[Path]:
    """At least 20 MB of plain JSONL: copies of recordings, under new ids."""
    with tempfile.TemporaryDirectory() as folder:  # pytest would keep it for three runs
        once = multiply(sorted(corpus.SAMPLES.glob("*.jsonl*")), Path(folder, "once"), times=1)
        times = math.ceil(20 * MB / sum(path.stat().st_size for path in once))
        multiply(once, Path(folder, "archive"), times=times)
        for path in once:
            path.unlink()
        yield Path(folder)


@pytest.mark.slow
def test_twenty_megabytes_give_the_same_rows_whatever_the_partitions(twenty_megabytes: Path):
    archive, store = twenty_megabytes / "archive", twenty_megabytes / "store"
    assert sum(path.stat().st_size for path in archive.iterdir()) >= 19 * MB
    small, large = score(archive, store, 8 * MB, 15 * MB)
    assert small == large
    assert "('calls', 0)" not in small
