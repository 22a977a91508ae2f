"""Memory limits and unusual sizes: a huge frame, very many small files."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import mcptally as mt
from mcptally.errors import StoreError, UsageError
from mcptally.pipeline.engines.worker import Partition, gather_files, load, save
from mcptally.pipeline.partition import GatheredPartition
from mcptally.pipeline.plan import PARTITION, jobs_for_memory, partition_bytes_for_memory
from tests.benchmarks import archive as archives
from tests.stored_tables import assert_same
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow


def event(seq: int, direction: str, message: dict[str, object], recording: str = "r") -> bytes:
    head = {"v": 1, "event": "message", "recording": recording, "seq": seq, "ts_ns": seq}
    return json.dumps(head | {"dir": direction, "bytes": 1, "msg": message}).encode() + b"\n"


def test_a_frame_of_200_mb_is_a_call_like_any_other(tmp_path: Path):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "big"}}
    block = {"type": "text", "text": "@"}
    reply = event(1, "s2c", {"jsonrpc": "2.0", "id": 1, "result": {"content": [block]}})
    before, after = reply.split(b"@")
    with (tmp_path / "big.jsonl").open("wb") as file:
        file.write(event(0, "c2s", call))
        file.write(before)
        for _ in range(200):
            file.write(b"lorem ipsum dolor sit amet, cons" * (1 << 15))
        file.write(after)
        file.write(event(2, "c2s", call | {"id": 2}))
    mt.score(tmp_path / "big.jsonl", out=tmp_path / "store", partition_bytes=1 << 20)
    calls = pl.read_parquet(tmp_path / "store" / "calls" / "*.parquet")
    kept = calls.select("outcome", pl.col("response").str.len_bytes() >= 200 << 20)
    assert kept.rows() == [("ok", True), ("no_response", None)]


@pytest.fixture(scope="module")
def one_large(tmp_path_factory) -> Path:
    """Two recordings, one of them with 50 MB; some of its calls fail and are repeated."""
    folder = tmp_path_factory.mktemp("one_large")
    events = [opened("large")]
    for seq in range(1, 241, 2):
        words = f"{seq % 40} is not a path. " * 25_000
        events += [
            c2s(seq, call(seq, path=words[:20]), "large"),
            s2c(seq + 1, text(seq, words, isError=seq % 5 == 0), "large"),
        ]
    write(folder / "large.jsonl", events)
    write(folder / "small.jsonl", [opened("small"), c2s(1, call(1), "small")])
    return folder


def test_a_large_recording_has_the_same_rows_whether_or_not_its_tables_are_in_files(
    one_large: Path, tmp_path: Path
):
    mt.score(one_large, out=tmp_path / "memory", jobs=1)
    mt.score(one_large, out=tmp_path / "files", jobs=1, partition_bytes=1 << 20)
    assert_same(tmp_path / "files", tmp_path / "memory")


def test_a_large_recording_is_the_same_after_it_was_saved_for_another_worker(
    one_large: Path, tmp_path: Path
):
    files = [one_large / "large.jsonl"]
    part, _, _ = gather_files(Partition(0, files, 50 * MB, chunk=1000), tmp_path / "scratch")
    assert isinstance(part, GatheredPartition)
    assert part.mapped.is_large
    save(tmp_path / "saved", part)
    loaded = load(tmp_path / "saved")
    assert loaded.calls.equals(part.calls)
    assert loaded.messages.equals(part.messages)


def test_a_disk_without_room_for_the_tables_of_a_large_recording_is_one_sentence(
    one_large: Path, tmp_path: Path
):
    store = tmp_path / "store"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MB, limits[1]))
    try:
        with pytest.raises(StoreError, match="cannot be written, the disk is full; there is no st"):
            mt.score(one_large, out=store, jobs=1, partition_bytes=1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not store.exists()


SCORE_AND_PRINT_PEAK = """
import sys
from mcptally.cli.score import command
command(sys.argv[1:], standalone_mode=False)
status = dict(line.split(":") for line in open("/proc/self/status"))
peak, libraries = (int(status[name].split()[0]) for name in ("VmHWM", "RssFile"))
print(peak - libraries)
"""
"""A program that scores an archive and prints its peak memory in kilobytes.

The pages of shared libraries are left out. How many of them count as resident depends on the
kernel's page cache: 124 MB in one environment and 191 MB in another one with equal files.
"""

MB = 1_000_000

LIBRARIES = 195 * MB
"""The most that pages of shared libraries took."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")


def peak(archive: Path, *options: str) -> int:
    """Peak memory in bytes of a new process that scores an archive, without shared libraries."""
    store = archive.with_name(f"{archive.name}-store")
    command = [str(archive), "-o", str(store), "--jobs", "1", *options]
    said = subprocess.run(
        [sys.executable, "-c", SCORE_AND_PRINT_PEAK, *command],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return int(said.split()[-1]) * 1024


@linux
def test_memory_stays_below_the_given_limit_and_does_not_grow_with_the_archive(tmp_path: Path):
    limit = 450 << 20
    needed = []
    for size in (15, 40):  # more than fits in memory
        archives.sessions(tmp_path / f"{size}", size * MB)
        needed.append(peak(tmp_path / f"{size}", "--memory", str(limit)))
    assert max(needed) + LIBRARIES < limit
    # In memory, the additional partitions would take three times their bytes. Peaks vary by 20 MB.
    assert needed[1] - needed[0] < 55 * MB


@linux
def test_a_session_takes_less_than_four_kilobytes_per_call(tmp_path: Path):
    calls = 40_000
    archives.session(tmp_path / "archive", calls=calls)
    assert peak(tmp_path / "archive") < 180 * MB + 4000 * calls


@linux
def test_recordings_of_one_file_are_scored_in_slices_within_the_limit(tmp_path: Path):
    archives.recordings(tmp_path / "archive", count=40_000)
    # 392 MB if they are scored together, 200 MB in slices, of which 105 MB are the process itself.
    assert peak(tmp_path / "archive", "--memory", str(450 << 20)) < 300 * MB


@linux
def test_a_large_frame_takes_less_than_14_times_its_bytes(tmp_path: Path):
    size = 40 * MB
    archives.frame(tmp_path / "archive", size=size)
    assert peak(tmp_path / "archive") < 220 * MB + 14 * size


@linux
def test_each_of_many_files_takes_less_than_10_kilobytes(tmp_path: Path):
    archives.files(tmp_path / "archive", count=4000)
    assert peak(tmp_path / "archive") < 180 * MB + 10_000 * 4000
    rows = mt.open_store(tmp_path / "archive-store").manifest["rows"]
    assert rows["recordings"] == rows["calls"] == 4000


def test_too_little_memory_is_an_error_before_work_begins():
    with pytest.raises(UsageError, match="too little for 4 process"):
        partition_bytes_for_memory(1 << 30, jobs=4)
    assert jobs_for_memory(1 << 30, cores=4) == 2
    assert jobs_for_memory(8 << 30, cores=4) == 4
    assert PARTITION < partition_bytes_for_memory(8 << 30, jobs=4) < 8 << 28
