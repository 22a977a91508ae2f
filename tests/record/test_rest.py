"""Compression and retention of segments, and the files they must not touch."""

import os
import time
from pathlib import Path

import zstandard

from mcptally.transcript.writer.housekeeping import Housekeeper, compress, sweep
from mcptally.transcript.writer.segment import Segment, segment_stem
from tests.record.recorder_process import eventually


def set_age(path, seconds):
    when = time.time() - seconds
    os.utime(path, (when, when))


def segment(folder, server="s", *, number=0, age=0.0, text="{}\n", suffix=".jsonl"):
    name = f"{segment_stem(server, '0' * 12, 0)}-{number:04d}{suffix}"
    (folder / name).write_text(text)
    set_age(folder / name, age)
    return folder / name


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run_sweep(folder, *, size=None, age=None, compress=False):
    sweep(folder, keep_bytes=size, keep_seconds=age, compress_idle=compress, now=time.time())


def test_compressing_a_segment_keeps_its_bytes_time_and_mode(tmp_path):
    path = segment(tmp_path, text='{"a":1}\n' * 50_000, age=50)
    modified = path.stat().st_mtime
    whole = compress(path)
    assert names(tmp_path) == [whole.name] == [path.name + ".zst"]
    with zstandard.open(whole, "rb") as file:
        assert file.read() == b'{"a":1}\n' * 50_000
    assert whole.stat().st_mode & 0o777 == 0o600
    assert abs(whole.stat().st_mtime - modified) < 1


def test_a_segment_being_written_is_neither_compressed_nor_removed(tmp_path):
    live = Segment(str(tmp_path), f"{segment_stem('s', '0' * 12, 0)}-0000.jsonl")
    live.put(b"{}\n")
    live.publish()
    path = Path(live.path)
    set_age(path, 1e6)
    assert compress(path) is None
    run_sweep(tmp_path, size=0, age=0, compress=True)
    assert names(tmp_path) == [path.name]
    live.close()
    run_sweep(tmp_path, size=0)
    assert names(tmp_path) == []


def test_a_sweep_compresses_idle_segments_and_removes_idle_partial_files(tmp_path):
    segment(tmp_path, "recent", age=10)
    segment(tmp_path, "idle", age=7200)
    segment(tmp_path, "partial", age=7200, suffix=".jsonl.zst.part")
    segment(tmp_path, "working", age=10, suffix=".jsonl.zst.part")
    run_sweep(tmp_path, compress=True)
    left = [name.partition("-")[0] + name[name.index(".") :] for name in names(tmp_path)]
    assert left == ["idle.jsonl.zst", "recent.jsonl", "working.jsonl.zst.part"]


def test_old_segments_are_removed_then_the_oldest_over_the_total_size(tmp_path):
    for number, age in enumerate([1000, 500, 400, 10]):
        segment(tmp_path, f"n{number}", age=age, text="x" * 100)
    run_sweep(tmp_path, age=900)
    assert [name[:2] for name in names(tmp_path)] == ["n1", "n2", "n3"]
    run_sweep(tmp_path, size=200)
    assert [name[:2] for name in names(tmp_path)] == ["n2", "n3"]
    run_sweep(tmp_path)
    assert len(names(tmp_path)) == 2


def test_files_that_are_not_segments_are_not_touched(tmp_path):
    for name in ("notes.jsonl", "x.txt", "a-20260101T000000Z-zzz-0000.jsonl"):
        (tmp_path / name).write_text("{}\n")
        set_age(tmp_path / name, 1e9)
    (tmp_path / "elsewhere").write_text("{}\n")
    link = tmp_path / f"{segment_stem('s', '0' * 12, 0)}-0000.jsonl"
    link.symlink_to(tmp_path / "elsewhere")
    before = names(tmp_path)
    run_sweep(tmp_path, size=0, age=0, compress=True)
    assert names(tmp_path) == before


def test_the_housekeeper_compresses_queued_segments_and_stops_on_request(tmp_path):
    housekeeper = Housekeeper(tmp_path, keep_bytes=None, keep_seconds=None, compress=True)
    path = segment(tmp_path)
    housekeeper.queue(path)
    assert eventually(lambda: not path.exists())
    housekeeper.stop()
    assert names(tmp_path) == [path.name + ".zst"]


def test_a_segment_gets_its_final_name_after_its_first_line(tmp_path):
    made = Segment(str(tmp_path), f"{segment_stem('s', '0' * 12, 0)}-0000.jsonl")
    assert [name.endswith(".jsonl") for name in names(tmp_path)] == [False]
    made.put(b"{}\n")
    made.publish()
    assert names(tmp_path) == [Path(made.path).name]
    made.close()
