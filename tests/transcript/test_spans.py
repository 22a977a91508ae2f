"""A file with many recordings is cut into parts that have no recording in common."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.transcript.files import Digests, LineRun, Span, read_lines
from mcptally.transcript.spans import spans_of
from tests.transcripts import event, write

recordings = st.lists(st.integers(0, 30), min_size=1, max_size=60).map(
    lambda names: [f"r{name}" for name in names]
)


def written(path: Path, names: list[str]) -> Path:
    """Write a transcript with one line of each of these recordings."""
    lines = [event("stderr", seq, name, text="x" * seq) for seq, name in enumerate(names)]
    return write(path, lines)


def lines_of(path: Path, span: Span | None = None) -> list[tuple[int, bytes]]:
    runs = [run for run in read_lines(path, span=span, chunk=300) if isinstance(run, LineRun)]
    return [(run.first + n, line) for run in runs for n, line in enumerate(run.data.splitlines())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("spans")


@given(names=recordings, target=st.integers(100, 3000))
def test_parts_have_every_line_once_and_whole_recordings(
    folder: Path, names: list[str], target: int
):
    path = written(folder / "a.jsonl", names)
    spans = spans_of(path, target)
    parts = [lines_of(path, span) for span in spans]
    assert list(itertools.chain(*parts)) == lines_of(path)
    found = [{json.loads(line)["recording"] for _, line in part} for part in parts]
    assert sum(map(len, found)) == len(set(names))
    digests: Digests = {}
    list(read_lines(path, digests=digests))
    for span in spans:
        assert span.digest == digests.get((path, span.size))
    assert sum(span.share for span in spans) == pytest.approx(1)


def test_parts_of_recordings_one_after_the_other_are_about_as_large_as_asked(tmp_path: Path):
    names = [f"r{number // 2}" for number in range(200)]
    path = written(tmp_path / "a.jsonl", names)
    target = path.stat().st_size // 4
    sizes = [span.end - span.start for span in spans_of(path, target)]
    assert len(sizes) == 4
    assert all(0.8 * target < size < 1.2 * target for size in sizes)


def test_a_recording_that_goes_on_after_others_keeps_them_together(tmp_path: Path):
    names = ["a", *(f"b{n}" for n in range(20)), "a", *(f"c{n}" for n in range(20))]
    path = written(tmp_path / "a.jsonl", names)
    first, *_ = spans_of(path, 300)
    assert [json.loads(line)["recording"] for _, line in lines_of(path, first)][-1] == "a"


@pytest.mark.parametrize("line", [b"{oops}\n", b"\n", b'{"event":"stderr"}\n'])
def test_a_file_with_other_lines_is_not_cut(tmp_path: Path, line: bytes):
    path = written(tmp_path / "a.jsonl", ["a", "b", "c", "d"])
    assert len(spans_of(path, 100)) > 1
    path.write_bytes(path.read_bytes() + line)
    assert spans_of(path, 100) == []
