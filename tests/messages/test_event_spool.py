from pathlib import Path

import polars as pl
import pytest

from mcptally.messages.decode import Events, decode, decode_slices
from mcptally.messages.event_spool import Slicing
from mcptally.process_memory import mapped_files
from mcptally.tables.mapped_tables import MappedTables
from mcptally.transcript.events import FRAME_OF_EVENT
from tests.benchmarks import archive as archives
from tests.corpus import SAMPLES
from tests.transcripts import c2s, call, event, lines_of, opened, s2c, text, write

TABLES = ("messages", "asks", "replies", "raws", "http", "opens", "closes", "gaps", "stderr")


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """A file with all recordings of two sample traces, and a line that is not an event."""
    path = tmp_path_factory.mktemp("archive") / "all.jsonl"
    names = ("everything-http.jsonl.zst", "excel.jsonl.zst")
    lines = [line for name in names for line in lines_of(SAMPLES / name)]
    path.write_bytes(b"".join([b"{oops}\n", *lines]))
    return path


def slicing(folder: Path, memory: int, size: int) -> Slicing:
    """Return settings that divide a file of this size if scoring it takes more memory."""
    return Slicing(folder / "events", memory, size, MappedTables(folder / "mapped"))


def sliced(path: Path, folder: Path, *, size: int) -> list[Events]:
    """Return the slices of a file with a memory limit for 200 lines."""
    slices = decode_slices([path], [path.name], slicing(folder, 400_000, size))
    assert slices.several
    return list(slices.events)


def recordings(events: Events) -> set[str]:
    """Return the recordings that have events in a slice."""
    tables = [getattr(events, table) for table in FRAME_OF_EVENT.values()]
    return {name for table in tables for name in table["recording"]}


@pytest.mark.parametrize("size", [1, 4 << 20], ids=["more than expected", "less than expected"])
def test_slices_have_each_event_once_and_whole_recordings(archive: Path, tmp_path: Path, size: int):
    whole = decode([archive], [archive.name])
    slices = sliced(archive, tmp_path, size=size)
    for name in TABLES:
        together = pl.concat([getattr(each, name) for each in slices])
        expected = getattr(whole, name)
        keys = ["row"] if "row" in expected.columns else ["file", "line"]
        assert together.sort(keys).equals(expected.sort(keys)), name
    found = [recordings(each) for each in slices]
    assert sum(map(len, found)) == len(set.union(*found)) > 1
    assert [each.findings.height for each in slices] == [1] + [0] * (len(slices) - 1)


@pytest.mark.slow
def test_replies_are_in_the_slice_of_their_message(archive: Path, tmp_path: Path):
    for each in sliced(archive, tmp_path, size=1):
        assert each.replies["row"].is_in(each.messages["row"].implode()).all()
        assert each.asks["row"].is_in(each.messages["row"].implode()).all()


def test_a_large_recording_is_not_divided_but_its_tables_are_in_files(tmp_path: Path):
    path = write(tmp_path / "one.jsonl", conversation(messages=60))
    whole = decode([path], ["a"])
    slices = decode_slices([path], ["a"], slicing(tmp_path, 1000, path.stat().st_size))
    assert not slices.several
    found = next(slices.events)
    for name in TABLES:
        assert getattr(found, name).equals(getattr(whole, name)), name
    assert sum(map(len, mapped_files())) > size_of_texts(found.replies["response"]) > 0
    assert not (tmp_path / "events").exists()


def size_of_texts(column: pl.Series) -> int:
    """Return how many bytes the texts of a column take in memory."""
    chunks = [each.to_arrow(compat_level=pl.CompatLevel.newest()) for each in column.get_chunks()]
    return sum(
        {each.address: each.size for chunk in chunks for each in chunk.buffers()[2:]}.values()
    )


NAME, LINE, LONG = "r" * 40, "stderr " * 50, "result " * 30_000


def conversation(messages: int) -> list[bytes]:
    """Return the events of a recording in which calls have the same long result."""
    events = [opened(NAME)]
    for number in range(1, messages, 3):
        events += [
            c2s(number, call(number), NAME),
            event("stderr", number + 1, NAME, text=LINE),
            s2c(number + 2, text(number, LONG), NAME),
        ]
    return events


def test_what_a_recording_repeats_is_in_memory_about_once(tmp_path: Path):
    name, line, long = NAME, LINE, LONG
    path = write(tmp_path / "one.jsonl", conversation(messages=301))
    found = decode([path], ["a"])
    assert size_of_texts(found.replies["response"]) < 2 * len(long)
    batches = 20
    assert size_of_texts(found.stderr["text"]) < batches * len(line)
    assert size_of_texts(found.messages["recording"]) < batches * len(name)


@pytest.mark.parametrize(
    "line",
    [b'{"a":1}\n', b"\n", b"2026-11-23 12:00:00 INFO started\n"],
    ids=["json", "blank", "log"],
)
def test_a_chunk_without_events_ends_neither_the_file_nor_the_run(tmp_path: Path, line: bytes):
    other, good = tmp_path / "other.jsonl", tmp_path / "good.jsonl"
    other.write_bytes(line * 3000)
    good.write_bytes(archives.exchange(1, "one"))
    slices = decode_slices([other, good], ["other", "good"], slicing(tmp_path, 100_000, 1))
    found = next(slices.events)
    assert found.messages.height == 2
    assert found.findings["file"].unique().to_list() == ["other"]
