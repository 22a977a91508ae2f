"""A hostile archive is read, reported, and does not affect the other files in it."""

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
import zstandard

import mcptally as mt
from mcptally.analytics.explain import explain
from mcptally.analytics.explanation import text
from mcptally.errors import UnreadableError
from mcptally.messages.decode import decode
from mcptally.messages.memory_budget import PARTITION_BASE_BYTES
from mcptally.output.export import export
from mcptally.process_memory import available_in_cgroup, available_memory
from mcptally.transcript.check import check
from mcptally.transcript.discover import discover
from mcptally.transcript.files import (
    FREE_EXPANSION,
    Damage,
    DecompressionBudget,
    LineRun,
    open_stream,
    read_lines,
)
from tests.hostile.scored_archive import GOOD, Outcome, judged, recording
from tests.transcripts import bomb, call, exchange, opened, request, result, write

pytestmark = pytest.mark.slow


def zipped() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a.jsonl", recording())
    return buffer.getvalue()


def message(msg: bytes, seq: int = 1, recording: bytes = b"r1") -> bytes:
    head = b'{"v":1,"event":"message","recording":"%b","seq":%d,"ts_ns":1700000000000000000,'
    return head % (recording, seq) + b'"dir":"c2s","msg":%b}\n' % msg


def asks(arguments: bytes, id_: bytes = b"1") -> bytes:
    call_ = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"t","arguments":%b}}'
    return call_ % (id_, arguments)


LINES: dict[str, tuple[bytes, str, str]] = {
    "nesting 100,000 deep": (
        message(asks(b"[" * 100_000 + b"]" * 100_000)), "transcript.too_deep", "nested deeper"),
    "NUL bytes": (b"\0" * 5000 + b"\n", "transcript.not_json", "not JSON"),
    "bytes that are no UTF-8": (
        message(asks(b'"\xff\xfe"')), "transcript.not_utf8", "not UTF-8"),
    "a lone surrogate in an envelope": (
        message(asks(b"{}"), recording=rb"r\ud800"), "transcript.not_json", "not JSON"),
    "a number that JSON has not": (message(asks(b"NaN")), "transcript.not_json", "not JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + recording(), "transcript.not_json", "not JSON"),
    "a negative seq": (message(asks(b"{}"), -1), "transcript.not_an_event", "seq"),
    "a seq beyond 64 bits": (message(asks(b"{}"), 2**63), "transcript.not_an_event", "seq"),
    "a seq with a fraction": (
        message(asks(b"{}")).replace(b'"seq":1', b'"seq":1.5'), "transcript.not_an_event", "seq"),
    "a time of 1e400": (
        message(asks(b"{}")).replace(b"1700000000000000000", b"1e400"),
        "transcript.not_an_event", "ts_ns"),
    "a recording that is a number": (
        message(asks(b"{}")).replace(b'"r1"', b"7"), "transcript.not_an_event", "recording"),
    "a negative segment": (
        recording().replace(b'"segment": 0', b'"segment": -1'),
        "transcript.not_an_event", "segment"),
    "an exit code beyond 64 bits": (
        recording().replace(b'"eof"', b'"eof", "exit_code": -9223372036854775809'),
        "transcript.not_an_event", "exit_code"),
    "an HTTP status beyond 32 bits": (
        message(asks(b"{}")).replace(b'"message"', b'"http","phase":"end","status":2147483648'),
        "transcript.not_an_event", "status"),
    "a version of tomorrow": (
        recording().replace(b'"v": 1', b'"v": 2'), "transcript.unknown_format", "format 2"),
    "no version": (recording().replace(b'"v": 1, ', b""), "transcript.not_an_event", "`v`"),
    "a version of a thousand digits": (
        recording().replace(b'"v": 1', b'"v": ' + b"9" * 1000),
        "transcript.unknown_format", "format 99999999999999999999 "),
    "a segment of the far end": (
        recording().replace(b'"segment": 0', b'"segment": 9223372036854775807'),
        "archive.segment_missing", "9,223,372,036,854,775,807 segments are missing"),
    "a seq of the far end": (
        recording().replace(b'"seq": 3', b'"seq": 9223372036854775807'),
        "archive.sequence_hole", "9,223,372,036,854,775,804 events are missing"),
    "a seq twice, of two times": (
        recording() + message(asks(b"{}"), 1), "archive.sequence_repeat", "repeats a seq"),
    "a place twice, of two contents": (
        recording() + recording(words="evil"), "archive.conflicting_events", "repeats a seq"),
    "two events of a place, of one time": (
        message(asks(b"{}")) + message(asks(b'{"a":1}')),
        "archive.conflicting_events", "repeats a seq"),
}  # fmt: skip
"""Case → lines, the rule that reports it, and words in the report of `check`."""


HARMLESS = {
    "a number without end": message(asks(b"{}", b"1" * 100_000)),
    "a number beyond a double": message(asks(b'{"a":1e400,"b":-' + b"9" * 5000 + b"}")),
    "an escaped NUL": message(asks(rb'{"a\u0000":"\u0000"}')),
    "nesting of 500": message(asks(b'{"a":' + b"[" * 500 + b"]" * 500 + b"}")),
    "200,000 members": message(
        asks(b"{" + b",".join(b'"k%d":1' % n for n in range(200_000)) + b"}")
    ),
    "a batch of 3,000": message(b"[" + b",".join([asks(b"{}")] * 3000) + b"]"),
    "a time at the end of 64 bits": message(asks(b"{}")).replace(
        b"1700000000000000000", b"9223372036854775807"
    ),
    "no time at all": message(asks(b"{}")).replace(b"1700000000000000000", b"0"),
    "the same member twice": message(asks(b"{}").replace(b'"id":1', b'"id":2,"id":1')),
    "envelope members twice": message(asks(b"{}")).replace(b'"v":1', b'"v":2,"v":1'),
    "a name that is a path": message(asks(b"{}").replace(b'"t"', b'"../../t"'), 1, b"../../../r"),
    "a signal of another kind": message(asks(b"{}"))
    + b'{"v":1,"event":"close","recording":"r1","seq":2,"ts_ns":2,"signal":"__class__"}\n',
    "an empty name": message(asks(b"{}").replace(b'"t"', b'""'), 1, b""),
    "a name of 100,000 characters": message(
        asks(b"{}").replace(b'"t"', b'"%b"' % (b"t" * 100_000))
    ),
}


FILES: dict[str, tuple[str, bytes, str, str]] = {
    "a zip file": ("a.jsonl", zipped(), "archive.foreign_file", "a zip file"),
    "an xz file": ("a.jsonl", b"\xfd7zXZ\0\0", "archive.foreign_file", "an xz file"),
    "UTF-16": ("a.jsonl", recording().decode().encode("utf-16"), "archive.foreign_file", "UTF-16"),
    "noise that is called gzip": (
        "a.jsonl.gz", b"\x00\x99noise\xff" * 50, "archive.foreign_file", "neither gzip nor zstd"),
    "noise behind a gzip head": (
        "a.jsonl.gz", b"\x1f\x8b" + b"\xaa" * 500, "archive.cannot_decompress", "reading stopped"),
    "noise behind a zstd head": (
        "a.jsonl.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 500,
        "archive.cannot_decompress", "reading stopped"),
    "a zstd frame that wants 4 GB of memory": (
        "a.jsonl.zst", b"\x28\xb5\x2f\xfd\x00\xb0" + b"\x00" * 50,
        "archive.cannot_decompress", "reading stopped"),
    "an empty file": ("a.jsonl", b"", "archive.empty_file", "empty"),
    "nothing but line ends": ("a.jsonl", b"\n" * 10_000, "archive.empty_file", ""),
    "noise without a line end": ("a.jsonl", b"noise" * 100, "transcript.not_json", "not JSON"),
    "a line that was cut": ("a.jsonl", recording()[:-9], "transcript.torn_tail", "torn tail"),
}  # fmt: skip


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One archive with all cases, each in its own file and recording."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "archive").mkdir()
    for number, name in enumerate([*LINES, *HARMLESS, *FILES]):
        if name in FILES:
            suffix, data = FILES[name][0].removeprefix("a"), FILES[name][1]
        else:
            suffix, data = ".jsonl", LINES[name][0] if name in LINES else HARMLESS[name]
        mine = data.replace(b'"r1"', b'"own %d"' % number)
        (folder / "archive" / f"{name}{suffix}").write_bytes(mine)
    return judged(folder)


@pytest.fixture(scope="module")
def opened_store(scored: Outcome) -> mt.Store:
    return mt.open_store(scored.store)


def about(outcome: Outcome, table: str, name: str) -> pl.DataFrame:
    """Return the rows about the file of one case."""
    return outcome.table(table).filter(pl.col("file").str.contains(f"/{name}.jsonl", literal=True))


@pytest.mark.parametrize("name", [*LINES, *FILES])
def test_a_hostile_line_or_file_gives_a_finding(scored: Outcome, name: str) -> None:
    rule, words = LINES[name][1:] if name in LINES else FILES[name][2:]
    rules = set(about(scored, "findings", name).get_column("rule"))
    assert rule in rules
    assert words in scored.said


@pytest.mark.parametrize("name", HARMLESS)
def test_an_unusual_but_valid_message_is_a_call(scored: Outcome, name: str) -> None:
    rules = set(about(scored, "findings", name).get_column("rule"))
    assert not {rule for rule in rules if rule.startswith("transcript.")}
    assert about(scored, "calls", name).height == HARMLESS[name].count(b'"method"')


@pytest.mark.parametrize(
    "name", ["a number without end", "200,000 members", "no time at all", "a name that is a path"]
)
def test_explain_shows_an_unusual_call(scored: Outcome, opened_store: mt.Store, name: str) -> None:
    call_id = about(scored, "calls", name).get_column("call_id")[-1]
    assert call_id in text(explain(opened_store, call_id))


@pytest.mark.parametrize("form", ["csv", "jsonl", "har", "otlp", "parquet"])
def test_an_unusual_call_is_exported(
    scored: Outcome, opened_store: mt.Store, tmp_path: Path, form: str
) -> None:
    done = export(opened_store, to=form, out=tmp_path / "out")
    untimed = 1 if form in {"har", "otlp"} else 0
    assert sum(done.left_out.values()) == untimed
    assert done.rows == scored.table("calls").height


def test_events_before_damaged_bytes_are_read(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    for suffix, pack in (("gz", gzip.compress), ("zst", zstandard.compress)):
        path = tmp_path / "archive" / f"a.jsonl.{suffix}"
        path.write_bytes(pack(recording(suffix)) + b"tail")
    outcome = judged(tmp_path)
    assert outcome.calls("gz") == outcome.calls("zst") == ["ok"]
    found = outcome.table("findings").filter(rule="archive.cannot_decompress")
    assert found.get_column("file").n_unique() == 2


# --- limits on memory ---


def test_a_file_is_read_until_the_memory_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = json.dumps({"v": 1, "event": "stderr", "recording": "r", "ts_ns": 1, "text": "x" * 900})
    path.write_text("".join(f'{line[:-1]},"seq":{n}}}\n' for n in range(4000)))
    whole = decode([path], ["a"], memory=1 << 30)
    assert (whole.stderr.height, whole.findings.height) == (4000, 0)
    some = decode([path], ["a"], memory=PARTITION_BASE_BYTES + (6 << 20))
    [found] = some.findings.to_dicts()
    assert found["rule"] == "archive.more_than_memory"
    assert "256 MB of free memory" in found["message"]
    assert 0 < some.stderr.height == found["line"] - 1 < 4000


def test_a_long_line_counts_towards_the_memory_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = b'{"v":1,"event":"stderr","recording":"r","seq":%d,"ts_ns":1,"text":"%b"}\n'
    size = 8 << 20
    path.write_bytes(line % (0, b"x" * size) + b"".join(line % (n, b"y") for n in range(1, 2000)))
    events = decode([path], ["a"], memory=PARTITION_BASE_BYTES + 6 * size)
    assert events.findings.get_column("rule").to_list() == ["archive.more_than_memory"]


def test_lines_that_are_not_events_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    size = 48 << 20
    path.write_bytes((b"x" * 1023 + b"\n") * (size >> 10))
    tracemalloc.start()
    try:
        decode([path], ["a"], memory=1 << 40)
        assert tracemalloc.get_traced_memory()[1] < size * 3 // 4
    finally:
        tracemalloc.stop()


def test_free_memory_is_a_plausible_number() -> None:
    left = available_memory()
    assert left is None or 0 < left < 1 << 50


def test_cached_files_count_as_free_memory(tmp_path: Path) -> None:
    stat = "anon 300\nactive_file 400\ninactive_file 150"
    said = {"max": "1000", "now": "900", "memory.stat": stat}
    for name, text_ in said.items():
        (tmp_path / name).write_text(f"{text_}\n")
    assert available_in_cgroup(tmp_path, "max", "now") == 650
    (tmp_path / "memory.stat").write_text("active_file 1\ntotal_active_file 20\n")
    assert available_in_cgroup(tmp_path, "max", "now", "total_") == 120
    (tmp_path / "max").write_text("max\n")
    with pytest.raises(ValueError, match="max"):
        available_in_cgroup(tmp_path, "max", "now")


# --- decompression bombs ---


@pytest.mark.parametrize("block", [b" ", b"\n", b"x" * 1023 + b"\n"])
def test_a_decompression_bomb_is_read_up_to_the_limit(tmp_path: Path, block: bytes) -> None:
    path = bomb(tmp_path / "a.jsonl.zst", block, 32)
    room = DecompressionBudget(1 << 20)
    *runs, last = read_lines(path, room=room, max_line=1 << 22)
    read = sum(len(run.data) for run in runs if isinstance(run, LineRun))
    assert isinstance(last, Damage)
    assert last.rule == "archive.unpacks_too_large"
    assert read <= path.stat().st_size * FREE_EXPANSION + (1 << 20) + (1 << 20)


def test_check_applies_one_limit_to_all_bombs_of_an_archive(tmp_path: Path) -> None:
    for name in ("a.jsonl.zst", "b.jsonl.zst"):
        bomb(tmp_path / name, b" ", 400, head=recording())
    told = {
        Path(file.file).name: " ".join(file.problems) for file in check([tmp_path]).damaged_files
    }
    assert [name for name, words in told.items() if "decompress to more" in words] == [
        "b.jsonl.zst"
    ]


def test_a_line_of_half_a_gigabyte_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "sparse.jsonl"
    with path.open("wb") as file:
        file.write(recording())
        file.seek(512 << 20)
        file.write(b"\n" + recording("r2"))
    runs = list(read_lines(path))
    assert [run.rule for run in runs if isinstance(run, Damage)] == ["archive.line_too_long"]
    kept = b"".join(run.data for run in runs if isinstance(run, LineRun))
    assert kept == recording() + recording("r2")


# --- pipes, links, and files that change ---


def test_pipes_sockets_and_devices_are_skipped_without_waiting(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    os.mkfifo(archive / "pipe.jsonl")
    (archive / "device.jsonl").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one:
        with contextlib.chdir(archive):  # names of sockets are short
            one.bind("socket.jsonl")
        outcome = judged(tmp_path)
    told = outcome.table("findings").filter(pl.col("rule") == "archive.not_followed")
    names = {Path(name).name for name in told.get_column("file")}
    assert names == {"pipe.jsonl", "device.jsonl", "socket.jsonl"}
    assert outcome.said.count("skipped: ") == 3
    for name in sorted(names):
        with pytest.raises(UnreadableError, match="not a regular file"):
            discover([archive / name])
        with pytest.raises(UnreadableError, match=r"not a regular file|No such device"):
            open_stream(archive / name)


def test_links_out_of_the_folder_and_circular_ones_are_not_followed(tmp_path: Path) -> None:
    archive, secret = tmp_path / "archive", tmp_path / "secret"
    (archive / "sub").mkdir(parents=True)
    secret.mkdir()
    (secret / "s.jsonl").write_bytes(recording("secret"))
    (archive / "file.jsonl").symlink_to(secret / "s.jsonl")
    (archive / "sub" / "folder").symlink_to(secret)
    (archive / "up.jsonl").symlink_to("../secret/s.jsonl")
    (archive / "inside.jsonl").symlink_to("innocent.jsonl")
    (archive / "nowhere.jsonl").symlink_to("gone.jsonl")
    (archive / "self.jsonl").symlink_to("self.jsonl")
    for name in "ab":
        (archive / name).symlink_to(archive)
    outcome = judged(tmp_path)
    assert outcome.table("recordings").get_column("recording").to_list() == [GOOD]
    told = outcome.table("findings").filter(pl.col("rule") == "archive.not_followed")
    assert {Path(name).name for name in told.get_column("file")} >= {
        *("file.jsonl", "folder", "up.jsonl", "nowhere.jsonl"),
    }
    assert "inside.jsonl" not in {Path(name).name for name in told.get_column("file")}
    assert discover([archive / "file.jsonl"]) == [str(archive / "file.jsonl")]
    assert discover([str(archive / "**" / "*.jsonl")])


def test_a_file_1200_folders_deep_is_found(tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
        Path("a.jsonl").write_bytes(recording())
        assert len(discover([tmp_path])) == 1
    finally:  # pytest cannot delete so deep a folder
        Path("a.jsonl").unlink(missing_ok=True)
        while not Path.cwd().samefile(tmp_path):
            os.chdir("..")
            Path("d").rmdir()
        os.chdir(here)


def test_a_file_name_that_is_not_utf8_is_reported_and_not_read(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    name = os.fsdecode(b"\xff\x1b[2J.jsonl")
    try:
        (archive / name).write_bytes(recording())
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    outcome = judged(tmp_path)
    assert "archive.not_followed" in outcome.rules
    assert "its name is not UTF-8" in outcome.said
    with pytest.raises(UnreadableError, match="not UTF-8"):
        discover([archive / name])


def test_a_file_that_vanishes_while_others_are_read_is_a_finding(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for number in range(2):
        (archive / f"{number}.jsonl").write_bytes(recording(f"r{number}") * (2 - number))

    def vanish(_: int, __: int) -> None:
        (archive / "1.jsonl").unlink(missing_ok=True)

    mt.score(archive, out=tmp_path / "store", partition_bytes=1, progress=vanish)
    found = pl.read_parquet(tmp_path / "store" / "findings" / "*.parquet")
    gone = found.filter(pl.col("rule") == "archive.cannot_read")
    assert [Path(name).name for name in gone.get_column("file")] == ["1.jsonl"]
    calls = pl.read_parquet(tmp_path / "store" / "calls" / "*.parquet")
    assert set(calls.get_column("recording")) == {"r0"}


def test_a_file_that_grows_while_it_is_read_is_read_up_to_its_first_size(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(recording())
    read = b""
    with path.open("ab") as writer:
        for run in read_lines(path, chunk=64):
            assert isinstance(run, LineRun)
            read += run.data
            writer.write(recording("more"))
            writer.flush()
    assert read == recording()


def test_a_file_that_shrinks_while_it_is_read_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(recording() * 20_000)
    reading = read_lines(path, chunk=1000)
    next(reading)
    with path.open("r+b") as file:
        file.truncate(10)
    assert all(isinstance(run, LineRun) for run in reading)


@contextlib.contextmanager
def as_nobody() -> Iterator[Path]:
    """A folder with an empty archive; gives up root's privileges, if the tests run as root."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "archive").mkdir()
        if is_root:
            for path in (folder, folder / "archive"):
                os.chown(path, 65534, 65534)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if is_root:
                os.seteuid(0)


def may_read(path: Path) -> bool:
    path.chmod(0)
    return os.access(path, os.R_OK, effective_ids=True)


def test_a_file_without_read_permission_does_not_stop_the_run() -> None:
    with as_nobody() as folder:
        secret = folder / "archive" / "secret.jsonl"
        secret.write_bytes(recording())
        if may_read(secret):
            pytest.skip("this user may read everything")
        outcome = judged(folder)
        assert "archive.cannot_read" in outcome.rules
        assert "Permission denied" in outcome.said


def test_a_folder_that_cannot_be_listed_is_an_error() -> None:
    with as_nobody() as folder:
        if may_read(folder / "archive"):
            pytest.skip("this user may read everything")
        with pytest.raises(UnreadableError, match="cannot be listed: Permission denied"):
            discover([folder / "archive"])


# --- large numbers ---


def test_one_recording_in_a_thousand_files_is_put_together(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for number in range(1000):
        line = message(b'{"id":%d,"method":"ping"}' % number, number)
        (archive / f"{number}.jsonl").write_bytes(line)
    rows = mt.score(archive, out=tmp_path / "store", partition_bytes=10_000).rows
    assert (rows["recordings"], rows["calls"]) == (1, 1000)
    assert [r.events for r in check([archive]).recordings] == [1000]


def test_conflicting_events_are_all_kept_and_copies_are_duplicates(tmp_path: Path) -> None:
    """A copy may have other spacing and escapes. All calls have ids of their own."""
    (tmp_path / "archive").mkdir()
    spelt = recording().replace(b'": ', b'":').replace(b'"event":"open"', rb'"event":"\u006fpen"')
    same_place = (message(asks(b'{"a":%d}' % n), 1, b"r3") for n in range(50))
    for name, data in {
        "a": message(asks(b'{"to":"alice"}'), 1, b"r2"),
        "b": message(asks(b'{"to":"mallory"}'), 1, b"r2"),
        "c": recording(),
        "d": spelt,
        "e": b"".join(same_place),
    }.items():
        (tmp_path / "archive" / f"{name}.jsonl").write_bytes(data)
    outcome = judged(tmp_path)
    calls = outcome.table("calls")
    mine = calls.filter(pl.col("recording") == "r2")
    assert sorted(mine.get_column("arguments")) == ['{"to":"alice"}', '{"to":"mallory"}']
    found = outcome.table("findings").with_columns(pl.col("file").str.slice(-7))
    (told,) = found.filter(rule="archive.conflicting_events", file="b.jsonl").to_dicts()
    assert (told["severity"], told["line"]) == ("error", 1)
    assert found.filter(file="d.jsonl").get_column("rule").to_list() == ["archive.duplicate_events"]
    assert outcome.calls("r1") == ["ok"]
    assert calls.filter(recording="r3").height == 50
    assert calls.get_column("call_id").n_unique() == calls.height


def test_memory_for_a_reply_of_many_parts_is_linear_in_its_length(tmp_path: Path) -> None:
    """Each reply has 1 MB. Memory quadratic in the number of parts would exceed 10 GB."""
    (tmp_path / "archive").mkdir()
    tools = [{"name": f"t{n}", "inputSchema": {"properties": {f"a{n}": {}}}} for n in range(10_000)]
    talks = {
        "listing": (request(1, "tools/list"), result(1, tools=tools)),
        "blocks": (call(1), result(1, content=[{"type": "odd"}] * 50_000)),
    }
    for name, talk in talks.items():
        for turn in range(2):
            events = exchange(*talk, recording=f"{name}{turn}")
            write(tmp_path / "archive" / f"{name}{turn}.jsonl", [opened(f"{name}{turn}"), *events])
    code = (
        "import resource, sys, mcptally as mt\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
        "print(mt.score(sys.argv[1], out=sys.argv[2], jobs=1).rows['calls'])\n"
    )
    words = [sys.executable, "-c", code, tmp_path / "archive", tmp_path / "store"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("4\n", 0), done.stderr[-2000:]
