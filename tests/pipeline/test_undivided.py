"""Recordings that are larger than a partition are named before they are scored."""

import random
import re
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.pipeline.plan import sizes_of, undivided
from tests.benchmarks import archive as archives
from tests.transcripts import c2s, call, opened, write


def recorded(path: Path, *recordings: str) -> Path:
    """A transcript with 300 kB of each recording."""
    events = [opened(recordings[0])]
    for name in recordings:
        events += [
            c2s(n, call(n, words=random.Random(n).randbytes(500).hex()), name)
            for n in range(1, 260)
        ]
    return write(path, events)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_recording_above_the_limit_is_named_with_the_memory_that_it_needs(
    tmp_path: Path, name: str
):
    path = recorded(tmp_path / name, "r1")
    [message] = undivided(sizes_of([path]), 250_000)
    found = re.fullmatch(
        r"(.*): recording r1 has [01] MB and cannot be divided; scoring it takes about (\d+) MB of "
        r"memory",
        message,
    )
    assert found is not None
    assert found[1] == str(path)
    assert 440 < int(found[2]) < 450


def test_files_of_one_recording_count_together(tmp_path: Path):
    files = [recorded(tmp_path / f"{n}.jsonl", "r1") for n in range(3)]
    [message] = undivided(sizes_of(files), 800_000)
    assert message.startswith(f"{files[0]} and 2 more files: recording r1 has 1 MB ")
    assert not list(undivided(sizes_of(files), 1_000_000))


def test_a_file_with_several_recordings_can_be_divided(tmp_path: Path):
    assert not list(undivided(sizes_of([recorded(tmp_path / "a.jsonl", "r1", "r2")]), 100_000))


@pytest.mark.slow
def test_a_run_warns_before_work_begins(tmp_path: Path):
    said: list[str] = []
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(archives.exchange(n, "one") for n in range(1, 20)))
    mt.score(
        path,
        out=tmp_path / "store",
        partition_bytes=1000,
        warn=said.append,
        progress=lambda *_: said.append("work"),
    )
    assert said[0].startswith(f"{path}: recording r ")
    assert set(said[1:]) == {"work"}
