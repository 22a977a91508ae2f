"""The tables depend on the archive alone: not on partitions, grouping or the order of files."""

import gzip
import json
import random
from pathlib import Path

import polars as pl
import pytest
import zstandard
from polars.testing import assert_frame_equal

import mcptally as mt
from mcptally.pipeline.plan import weight
from mcptally.tables.all_tables import TABLES
from mcptally.transcript.files import text_lines
from tests.pipeline.golden import TRACES

FILES = sorted(TRACES.rglob("*.jsonl*"))


def tables(store: Path) -> dict[str, pl.DataFrame]:
    """Every table of a store, sorted; where a file lies is not what is compared."""
    found = {}
    for table in TABLES:
        frame = pl.read_parquet(store / table.name / "*.parquet", missing_columns="insert")
        frame = frame.drop("file", "line", "files", strict=False)
        keys = [key for key in table.key if key in frame.columns]
        found[table.name] = frame.sort(keys, nulls_last=True)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, pl.DataFrame]:
    out = tmp_path_factory.mktemp("whole") / "store"
    mt.score(FILES, out=out)
    return tables(out)


def scattered(folder: Path, *, parts: int) -> list[Path]:
    """The sample traces cut anew: lines of all recordings dealt to files by chance, in order."""
    chance = random.Random(7)
    files = [(folder / f"{i}.jsonl").open("wb") for i in range(parts)]
    home: dict[str, int] = {}
    for path in FILES:
        for _, line in text_lines(path):
            recording = json.loads(line)["recording"]
            if recording not in home or chance.random() < 0.05:
                home[recording] = chance.randrange(parts)
            files[home[recording]].write(line)
    for file in files:
        file.close()
    return sorted(folder.glob("*.jsonl"))


@pytest.mark.parametrize("size", [1, 200_000], ids=["a file each", "a few files each"])
def test_partitions_make_no_difference(tmp_path: Path, whole, size: int):
    mt.score(FILES, out=tmp_path / "store", partition_bytes=size)
    for name, frame in tables(tmp_path / "store").items():
        assert_frame_equal(frame, whole[name])


def test_recordings_torn_over_files_are_put_together(tmp_path: Path, whole):
    (tmp_path / "files").mkdir()
    files = scattered(tmp_path / "files", parts=9)
    mt.score(files, out=tmp_path / "store", partition_bytes=1)
    for name, frame in tables(tmp_path / "store").items():
        if name != "findings":  # whose place is a file and a line
            assert_frame_equal(frame, whole[name])


def test_a_file_that_is_there_twice_counts_once_and_is_a_finding(tmp_path: Path, whole):
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"".join(line for _, line in text_lines(FILES[0])))
    mt.score([*FILES, copy], out=tmp_path / "store", partition_bytes=1)
    again = tables(tmp_path / "store")
    assert again["calls"].height == whole["calls"].height
    assert again["messages"].height == whole["messages"].height
    assert "archive.duplicate_events" in set(again["findings"]["rule"])


def test_how_much_a_packed_file_holds_is_told_by_its_beginning(tmp_path: Path):
    trace = next(path for path in FILES if path.suffix == ".jsonl").read_bytes()
    lines = trace * (6_000_000 // len(trace))  # a server's calls are alike, so they pack well
    plain, named, zst, gz = (tmp_path / name for name in ("a.jsonl", "a", "a.jsonl.zst", "a.gz"))
    plain.write_bytes(lines)
    named.write_bytes(lines)
    zst.write_bytes(zstandard.ZstdCompressor(level=1).compress(random.Random(1).randbytes(20_000)))
    assert weight(zst) == zst.stat().st_size * 8  # what packs badly counts as usual
    noise = random.Random(2)
    many = b"".join(
        line + f' {{"n": "{noise.randbytes(20).hex()}"}}\n'.encode() for line in lines.splitlines()
    )
    zst.write_bytes(zstandard.ZstdCompressor(level=3).compress(many))
    gz.write_bytes(gzip.compress(many, 6))
    assert weight(plain) == weight(named) == len(lines)
    for packed in (zst, gz):
        assert 8 * packed.stat().st_size < len(many)
        assert 0.7 * len(many) < weight(packed) < 1.3 * len(many), packed.name
    zst.write_bytes(zst.read_bytes()[:20_000] + b"no zstd")
    assert weight(zst) >= zst.stat().st_size * 8  # damaged ones are read as far as they go
    assert weight(tmp_path / "gone.gz") == 0
