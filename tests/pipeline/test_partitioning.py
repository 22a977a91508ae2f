"""The tables depend on the archive only: not on partitions or the order of files."""

import gzip
import json
import random
from pathlib import Path

import msgspec
import polars as pl
import pytest
import zstandard
from polars.testing import assert_frame_equal

import mcptally as mt
from mcptally.pipeline.archive_context import ArchiveContext
from mcptally.pipeline.engines.worker import FinishSettings, Partition, PartitionWorker
from mcptally.pipeline.gathering import stored_summaries
from mcptally.pipeline.partition_summary import NEEDS
from mcptally.pipeline.plan import plan, sizes_of, transcript_bytes
from mcptally.pipeline.scoring import ScoringRules
from mcptally.store.manifest import SUMMARIES, read_manifest
from mcptally.tables.all_tables import TABLES
from tests.pipeline.golden import TRACES
from tests.stored_tables import PLACES, assert_equal, assert_same, in_order, tables
from tests.transcripts import c2s, lines_of, opened, request, result, s2c, write

pytestmark = pytest.mark.slow

FILES = sorted(TRACES.rglob("*.jsonl*"))
CUT = 1_000_000
"""A limit that divides the sample traces into three partitions."""


def scattered(folder: Path, files: list[Path], *, parts: int) -> list[Path]:
    """The lines of transcripts, in order, written to random files."""
    chance = random.Random(7)
    written = [(folder / f"{i}.jsonl").open("wb") for i in range(parts)]
    home: dict[str, int] = {}
    for path in files:
        for line in lines_of(path):
            recording = json.loads(line)["recording"]
            if recording not in home or chance.random() < 0.05:
                home[recording] = chance.randrange(parts)
            written[home[recording]].write(line)
    for file in written:
        file.close()
    return sorted(folder.glob("*.jsonl"))


def one_file(folder: Path) -> Path:
    """The sample traces joined in one file, without lines that are not events."""
    folder.mkdir()
    path = folder / "all.jsonl"
    lines = (line for path in FILES for line in lines_of(path))
    path.write_bytes(b"".join(line for line in lines if line.startswith(b'{"v":1,"event"')))
    return path


def test_a_file_that_is_cut_between_recordings_has_the_tables_of_the_whole(tmp_path: Path):
    path = one_file(tmp_path / "archive")
    assert len(plan(sizes_of([path]), limit=CUT)) > 2
    mt.score(path, out=tmp_path / "whole")
    mt.score(path, out=tmp_path / "cut", partition_bytes=CUT)
    assert_same(tmp_path / "cut", tmp_path / "whole")
    # Without `stat`, which a file that was just written does not have.
    sources = [
        [msgspec.structs.replace(each, stat=None) for each in read_manifest(store)["archive"]]
        for store in (tmp_path / "whole", tmp_path / "cut")
    ]
    assert sources[0] == sources[1]


def test_parts_of_a_file_are_scored_together_if_another_file_continues_one(tmp_path: Path):
    path = one_file(tmp_path / "archive")
    lines = path.read_bytes().splitlines(keepends=True)
    moved = [*lines[5:9], *lines[-9:-5]]
    path.write_bytes(b"".join([*lines[:5], *lines[9:-9], *lines[-5:]]))
    (tmp_path / "archive" / "more.jsonl").write_bytes(b"".join(moved))
    mt.score(path.parent, out=tmp_path / "whole")
    mt.score(path.parent, out=tmp_path / "cut", partition_bytes=CUT)
    assert_same(tmp_path / "cut", tmp_path / "whole")


def finished(work: Path, chunk: int, *, several: bool) -> dict[str, pl.DataFrame]:
    """The tables of the sample traces as one partition, except tables about the whole archive."""
    (work / SUMMARIES).mkdir(parents=True)
    worker = PartitionWorker(work)
    worker.configure(FinishSettings(ScoringRules.of(), payloads=True))
    report = worker.gather(Partition(0, FILES, sum(sizes_of(FILES).values()), chunk=chunk))
    assert any(work.glob("spool/*/*")) == several
    summaries = stored_summaries(work, [0])
    context = ArchiveContext([summaries], work / "facts")
    own = summaries.read("listed", ["definition"]).get_column("definition")
    done = worker.finish(0, context.excerpt(summaries.read(NEEDS), own))
    assert done.rows["recordings"] == report.recordings.n_unique() == report.recordings.len()
    assert not list(work.glob("spool/*"))
    written = {table: work / table.name / "*.parquet" for table in TABLES}
    return {
        table.name: in_order(table, pl.read_parquet(files), *PLACES)
        for table, files in written.items()
        if files.parent.exists()
    }


def test_the_tables_do_not_depend_on_slices_of_a_partition(tmp_path: Path):
    whole = finished(tmp_path / "whole", chunk=1 << 30, several=False)
    sliced = finished(tmp_path / "sliced", chunk=6 << 20, several=True)
    assert_equal(sliced, whole)
    works = (tmp_path / "whole", tmp_path / "sliced")
    needs = [pl.read_parquet(work / SUMMARIES / NEEDS / "*.parquet") for work in works]
    assert_frame_equal(*needs, check_row_order=False)


def test_neither_partitions_nor_a_copy_of_a_file_change_the_tables(
    tmp_path: Path, sample_store: mt.Store
):
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"".join(lines_of(FILES[0])))
    mt.score([*FILES, copy], out=tmp_path / "store", partition_bytes=CUT)
    again, whole = (tables(store, *PLACES) for store in (tmp_path / "store", sample_store.path))
    duplicates = pl.col("rule") == "archive.duplicate_events"
    assert again["findings"].filter(duplicates).height
    again["findings"] = again["findings"].remove(duplicates)
    for found in (again, whole):
        found["recordings"] = found["recordings"].drop("findings")
    assert_equal(again, whole)


def test_times_of_a_call_alone_are_the_same_as_beside_others(tmp_path: Path):
    later = {"ts_ns": 1_700_000_002_138_098_006}
    for name in ("a", "b"):
        start, asked, answered = opened(name), c2s(0, request(1, "initialize"), name), result(1)
        write(
            tmp_path / f"{name}.jsonl", [start, asked | {"seq": 1}, s2c(2, answered, name) | later]
        )
    times = []
    for names in ("a", "ab"):
        store = tmp_path / f"store-{names}"
        mt.score([tmp_path / f"{name}.jsonl" for name in names], out=store)
        read = "SELECT latency_ms, ready_ms FROM calls JOIN recordings USING (recording)"
        times.append(mt.open_store(store).sql(f"{read} WHERE recording = 'a'").fetchall())
    assert times[0] == times[1]


def test_the_size_of_a_compressed_transcript_is_estimated_from_its_beginning(tmp_path: Path):
    trace = next(path for path in FILES if path.suffix == ".jsonl").read_bytes()
    lines = trace * (6_000_000 // len(trace))
    plain, named, zst, gz = (tmp_path / name for name in ("a.jsonl", "a", "a.jsonl.zst", "a.gz"))
    plain.write_bytes(lines)
    named.write_bytes(lines)
    zst.write_bytes(zstandard.ZstdCompressor(level=1).compress(random.Random(1).randbytes(20_000)))
    assert transcript_bytes(zst) == zst.stat().st_size * 8  # at least the usual expansion
    noise = random.Random(2)
    many = b"".join(
        line + f' {{"n": "{noise.randbytes(20).hex()}"}}\n'.encode() for line in lines.splitlines()
    )
    zst.write_bytes(zstandard.ZstdCompressor(level=3).compress(many))
    gz.write_bytes(gzip.compress(many, 6))
    assert transcript_bytes(plain) == transcript_bytes(named) == len(lines)
    for packed in (zst, gz):
        assert 8 * packed.stat().st_size < len(many)
        assert 0.7 * len(many) < transcript_bytes(packed) < 1.3 * len(many), packed.name
    zst.write_bytes(zst.read_bytes()[:20_000] + b"no zstd")
    assert transcript_bytes(zst) >= zst.stat().st_size * 8  # damaged files are estimated too
    assert transcript_bytes(tmp_path / "gone.gz") == 0
