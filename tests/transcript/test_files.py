"""Finding transcript files and reading their lines."""

import io
import os
import random
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from mcptally.errors import UnreadableError
from mcptally.transcript.discover import discover
from mcptally.transcript.files import (
    Damage,
    Digests,
    LineRun,
    open_stream,
    read_lines,
)
from tests.transcripts import opened, write


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_compression_is_recognised_by_the_first_bytes(tmp_path: Path, name: str):
    path = write(tmp_path / name, [opened()])
    disguised = path.rename(tmp_path / "disguised")
    with open_stream(disguised) as stream:
        assert stream.read().startswith(b'{"v": 1, "event": "open"')


def test_only_the_transcripts_of_a_folder_are_found_at_any_depth(tmp_path: Path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    wanted = [
        write(tmp_path / "b.jsonl", [opened()]),
        write(tmp_path / "deep" / "er" / "a.jsonl.zst", [opened()]),
    ]
    (tmp_path / "notes.txt").write_text("no transcript")
    os.mkfifo(tmp_path / "pipe.jsonl")
    outside = tmp_path.parent / f"{tmp_path.name}-outside.jsonl"
    outside.write_text("{}\n")
    (tmp_path / "link.jsonl").symlink_to(outside)
    assert discover([tmp_path]) == sorted(map(str, wanted))


def test_a_pattern_finds_its_matches(tmp_path: Path):
    path = write(tmp_path / "one.jsonl", [opened()])
    write(tmp_path / "two.jsonl", [opened()])
    assert discover([str(tmp_path / "on*.jsonl")]) == [str(path)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.jsonl", "no such file or folder"),
        ("empty", "no transcripts found"),
        ("**a", r"\*\*a: "),
    ],
)
def test_a_path_without_transcripts_is_refused(tmp_path: Path, name: str, words: str):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableError, match=words):
        discover([tmp_path / name])


def test_an_empty_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "here.jsonl", [opened()])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableError, match="a path is empty"):
        discover([""])


@given(
    st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=12),
    st.booleans(),
    st.integers(1, 9),
)
def test_runs_of_lines_contain_every_byte_with_the_right_line_numbers(
    tmp_path_factory, content: list[bytes], ends: bool, chunk: int
):
    path = tmp_path_factory.mktemp("runs") / "x.jsonl"
    data = b"\n".join(content) + (b"\n" if ends else b"")
    # Start with a brace: data that starts like a compressed file is read as one.
    path.write_bytes(b"{" + data)
    runs = [run for run in read_lines(path, chunk=chunk) if isinstance(run, LineRun)]
    assert b"".join(run.data for run in runs) == b"{" + data
    number = 1
    for run in runs:
        assert run.first == number
        assert run.count == len(io.BytesIO(run.data).readlines())
        number += run.count


def test_a_line_that_is_too_long_is_skipped_and_reported(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"short\n" + b"l" * 100 + b"\nnext\n")
    runs = list(read_lines(path, chunk=8, max_line=50))
    assert [run.rule for run in runs if isinstance(run, Damage)] == ["archive.line_too_long"]
    assert b"".join(r.data for r in runs if isinstance(r, LineRun)) == b"short\nnext\n"
    assert [r.first for r in runs if isinstance(r, LineRun) and r.data == b"next\n"] == [3]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_the_intact_part_of_a_truncated_compressed_file_is_read(tmp_path: Path, name: str):
    blob = random.Random(1).randbytes
    path = write(tmp_path / name, [opened(f"r{i}", blob=blob(40).hex()) for i in range(999)])
    path.write_bytes(path.read_bytes()[:-100])
    runs = list(read_lines(path, chunk=1000))
    assert sum(run.count for run in runs if isinstance(run, LineRun)) > 100


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_reading_a_file_to_its_end_gives_its_digest(tmp_path: Path, name: str):
    blob = random.Random(1).randbytes
    path = write(tmp_path / name, [opened(f"r{i}", blob=blob(999).hex()) for i in range(1500)])
    size = path.stat().st_size
    digests: Digests = {}
    lines = read_lines(path, digests=digests)
    next(lines)
    assert digests.get((path, size)) is None
    assert all(isinstance(run, LineRun) for run in lines)
    assert digests.get((path, size)) == blake3(path.read_bytes()).hexdigest()
    assert digests.get((path, size + 1)) is None
