"""The unread share of an archive, and the commands' messages about it."""

import itertools
import random
from pathlib import Path

import pytest
import zstandard

from mcptally.transcript.files import read_lines
from mcptally.transcript.unread import ReadTally, UnreadFile, in_words, summarize
from tests.commands import run
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow


def tally_of(path: Path) -> ReadTally:
    tally = ReadTally()
    for item in read_lines(path, chunk=1000, max_line=1000):
        tally.add(item)
    return tally


def packed(path: Path, *, kept: float) -> Path:
    """Return the first part of a zstd file with random lines, which compression does not shrink."""
    lines = random.Random(1).randbytes(600_000).hex().encode()
    data = zstandard.ZstdCompressor().compress(b"\n".join([lines[:900]] * 2 + [lines[900:1800]]))
    path.write_bytes(data[: round(len(data) * kept)])
    return path


def test_a_whole_file_has_no_fault(tmp_path: Path):
    tally = tally_of(packed(tmp_path / "a.jsonl.zst", kept=1))
    assert (tally.share, tally.fault) == (0, "")


def test_what_was_cut_off_a_compressed_file_is_a_fault_and_what_is_left_of_its_block_is_unread(
    tmp_path: Path,
):
    tally = tally_of(packed(tmp_path / "a.jsonl.zst", kept=0.5))
    assert tally.share == pytest.approx(1, abs=0.05)
    assert tally.fault == (
        "line 1: reading stopped: the compressed data ends early, as if the file was cut off"
    )


def test_a_skipped_line_counts_with_its_bytes(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 2000 + b"\n" + (b"y" * 499 + b"\n") * 2)
    tally = tally_of(path)
    assert tally.share == pytest.approx(2 / 3, abs=0.01)
    assert tally.fault == "line 1: a line of more than 1000 bytes was skipped"


def test_the_worst_files_are_named_and_the_others_counted():
    files = [UnreadFile(f"{n}.jsonl", 100, n / 100, "broken" if n else "") for n in range(6)]
    assert in_words(summarize(files)) == [
        "not read: at least 2.5% of the archive, in 5 of 6 files:",
        "  5.jsonl: broken",
        "  4.jsonl: broken",
        "  3.jsonl: broken",
        "  and 2 more files; all of them: mcptally check",
    ]
    assert in_words(summarize(files[:1])) == []


@pytest.fixture(scope="module")
def damaged(tmp_path_factory) -> tuple[Path, Path]:
    """A folder with a good and a cut transcript, and its store."""
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "archive").mkdir()
    calls = [
        event
        for n in range(1, 40)
        for event in (c2s(2 * n - 1, call(n, "t")), s2c(2 * n, text(n, f"{random.random()}")))
    ]
    write(folder / "archive" / "good.jsonl.zst", [opened(), *calls])
    cut = write(folder / "archive" / "cut.jsonl.zst", [opened("r2"), *calls])
    cut.write_bytes(cut.read_bytes()[:-30])
    assert run("score", folder / "archive", "-o", folder / "store").returncode == 0
    return folder / "archive", folder / "store"


@pytest.mark.parametrize(
    "command",
    [
        ("score", "ARCHIVE", "-o", "STORE"),
        ("check", "ARCHIVE"),
        ("compare", "STORE", "STORE"),
        pytest.param(("report", "STORE", "-o", "PAGE"), marks=pytest.mark.slow),
        pytest.param(("overview", "ARCHIVE"), marks=pytest.mark.slow),
    ],
    ids=lambda command: command[0],
)
def test_every_command_that_reads_an_archive_begins_with_what_could_not_be_read(
    damaged: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    places = {"ARCHIVE": damaged[0], "STORE": damaged[1], "PAGE": tmp_path / "page.html"}
    done = run(*(places.get(word, word) for word in command))
    said = done.stderr.splitlines()
    if command[0] == "overview":  # its first line, the archive, wraps if the path is long
        said = list(
            itertools.dropwhile(lambda line: "not read" not in line, done.stdout.splitlines())
        )
        assert done.stdout.splitlines().index(said[0]) <= 2
    assert said[0].startswith("not read: at least ")
    assert said[0].endswith(" of the archive, in 1 of 2 files:")
    assert "cut.jsonl.zst: line 1: reading stopped: the compressed data ends" in said[1]
    assert "No problem was found." not in done.stdout
    if command[0] == "report":
        assert said[0] in places["PAGE"].read_text()
