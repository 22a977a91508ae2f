"""Segments at rest: compression and retention, and whom they never touch."""

import os
import time
from pathlib import Path

import zstandard

from mcptally.record.writer.housekeeping import Housekeeper, compress, sweep
from mcptally.record.writer.segment import Segment, segment_stem
from tests.record.recorder_process import eventually


def old(path, seconds):
    when = time.time() - seconds
    os.utime(path, (when, when))


def segment(folder, server="s", *, number=0, age=0.0, text="{}\n", suffix=".jsonl"):
    name = f"{segment_stem(server, '0' * 12, 0)}-{number:04d}{suffix}"
    (folder / name).write_text(text)
    old(folder / name, age)
    return folder / name


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def keep(folder, *, size=None, age=None, squeeze=False):
    sweep(folder, keep_bytes=size, keep_seconds=age, compress_idle=squeeze, now=time.time())


def test_a_finished_segment_becomes_zstd_with_the_same_bytes_time_and_mode(tmp_path):
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
    old(path, 1e6)
    assert compress(path) is None
    keep(tmp_path, size=0, age=0, squeeze=True)
    assert names(tmp_path) == [path.name]
    live.close()
    keep(tmp_path, size=0)
    assert names(tmp_path) == []


def test_what_others_left_is_compressed_once_it_has_settled(tmp_path):
    segment(tmp_path, "fresh", age=10)
    segment(tmp_path, "settled", age=7200)
    segment(tmp_path, "cut", age=7200, suffix=".jsonl.zst.part")
    segment(tmp_path, "cutting", age=10, suffix=".jsonl.zst.part")
    keep(tmp_path, squeeze=True)
    left = [name.partition("-")[0] + name[name.index(".") :] for name in names(tmp_path)]
    assert left == ["cutting.jsonl.zst.part", "fresh.jsonl", "settled.jsonl.zst"]


def test_segments_go_by_age_then_the_oldest_beyond_the_total_size(tmp_path):
    for number, age in enumerate([1000, 500, 400, 10]):
        segment(tmp_path, f"n{number}", age=age, text="x" * 100)
    keep(tmp_path, age=900)
    assert [name[:2] for name in names(tmp_path)] == ["n1", "n2", "n3"]
    keep(tmp_path, size=200)
    assert [name[:2] for name in names(tmp_path)] == ["n2", "n3"]
    keep(tmp_path)
    assert len(names(tmp_path)) == 2


def test_files_that_are_not_ours_are_never_touched(tmp_path):
    for name in ("notes.jsonl", "x.txt", "a-20260101T000000Z-zzz-0000.jsonl"):
        (tmp_path / name).write_text("{}\n")
        old(tmp_path / name, 1e9)
    (tmp_path / "elsewhere").write_text("{}\n")
    link = tmp_path / f"{segment_stem('s', '0' * 12, 0)}-0000.jsonl"
    link.symlink_to(tmp_path / "elsewhere")
    before = names(tmp_path)
    keep(tmp_path, size=0, age=0, squeeze=True)
    assert names(tmp_path) == before


def test_the_housekeeper_compresses_what_it_is_handed_and_leaves_when_told(tmp_path):
    housekeeper = Housekeeper(tmp_path, keep_bytes=None, keep_seconds=None, compress=True)
    path = segment(tmp_path)
    housekeeper.finished(path)
    assert eventually(lambda: not path.exists())
    housekeeper.stop()
    assert names(tmp_path) == [path.name + ".zst"]


def test_a_segment_has_its_name_only_once_it_has_a_line(tmp_path):
    made = Segment(str(tmp_path), f"{segment_stem('s', '0' * 12, 0)}-0000.jsonl")
    assert [name.endswith(".jsonl") for name in names(tmp_path)] == [os.name == "nt"]
    made.put(b"{}\n")
    made.publish()
    assert names(tmp_path) == [Path(made.path).name]
    made.close()
