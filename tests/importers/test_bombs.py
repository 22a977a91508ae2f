"""Logs that decompress to a thousand times their size have the same limits as an archive."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from mcptally.importers import FORMATS, import_logs, packer, run
from mcptally.importers.items import Connection, Item, Tally
from mcptally.importers.json_array import elements
from mcptally.importers.packer import Packer
from mcptally.importers.source import Source
from mcptally.importers.transcript_builder import TranscriptBuilder
from mcptally.redaction.policy import policy
from mcptally.transcript.files import FREE_EXPANSION, DecompressionBudget, LineRun, read_lines
from tests.importers.imported_logs import all_records_accounted_for
from tests.transcripts import bomb

pytestmark = pytest.mark.slow

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
TOO_LARGE = "decompress to more than 64 times their size"

BOMBS = {
    "lines of noise": ("jsonrpc", PING, b"noise" * 400 + b"\n", b""),
    "line ends": ("jsonrpc", PING, b"\n", b""),
    "blanks without a line end": ("jsonrpc", PING, b" ", b""),
    "calls": ("jsonrpc", b"", PING, b""),
    "lines of a desktop log": (
        "claude-desktop", b"", b"2026-03-01T09:44:53.641Z [x] [info] words\n", b""),
    "entries of a HAR": ("har", b'{"log":{"entries":[', b'{"n":"more"},', b"{}]}}"),
    "one entry of a HAR": ("har", b'{"log":{"entries":[{"a":"', b"x", b'"}]}}'),
    "brackets of a HAR": ("har", b'{"log":{"x":', b"[", b""),
    "spans": ("otlp", b'{"resourceSpans":[', b'{"scopeSpans":[{"spans":[{}]}]},', b"{}]}"),
}  # fmt: skip


class Counted(Source):
    """A source that counts its decompressed bytes."""

    unpacked = 0

    def charge(self, records: int, size: int) -> None:
        self.unpacked += size
        super().charge(records, size)


@pytest.mark.parametrize(("form", "head", "block", "tail"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_read_up_to_the_limit_and_reported(
    tmp_path: Path, form: str, head: bytes, block: bytes, tail: bytes
) -> None:
    path = bomb(tmp_path / "x.log.zst", block, 8, head=head, tail=tail)
    source = Counted(path, path.name, room=DecompressionBudget(1 << 17))
    used = sum(1 for _ in FORMATS[form].read(source))
    assert used <= source.tally.used
    assert any(TOO_LARGE in why for why in source.tally.unused)
    # One chunk may be decompressed before it is counted.
    assert source.unpacked <= path.stat().st_size * FREE_EXPANSION + (2 << 20)


def test_a_first_pass_does_not_use_the_budget(tmp_path: Path) -> None:
    block = b'{"scopeSpans":[{"spans":[{"name":"%b"}]}]},' % (b"x" * 400)
    around = {"head": b'{"resourceSpans":[', "tail": b"{}]}"}
    path = bomb(tmp_path / "x.json.zst", block, 1, **around)
    source = Source(path, path.name, room=DecompressionBudget(3 << 20))
    assert list(FORMATS["otlp"].read(source)) == []
    assert source.tally.unused_count == 0
    assert source.tally.seen == (1 << 20) // len(block)


def test_bombs_share_one_budget_and_other_files_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        run, "DecompressionBudget", functools.partial(DecompressionBudget, 10 << 20)
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("a.jsonl.zst", "b.jsonl.zst"):
        bomb(logs / name, b" ", 8, head=PING, tail=b"\n" + PING)
    (logs / "c.jsonl.zst").write_bytes(zstandard.compress(PING * 20))
    done = import_logs(logs, tmp_path / "t")
    assert all_records_accounted_for(done)
    told = {o.file.name: [w for w in o.tally.unused if TOO_LARGE in w] for o in done.files}
    assert [name for name, words in told.items() if words] == ["b.jsonl.zst"]
    used = {outcome.file.name: outcome.tally.used for outcome in done.files}
    assert used == {"a.jsonl.zst": 2, "b.jsonl.zst": 1, "c.jsonl.zst": 20}


def test_a_deeply_nested_document_is_scanned() -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"log":{"x":' + b"[" * 100_000
        yield b"]" * 100_000 + b',"entries":[{"a":1},{"b":[[2]]}]}}'

    found = [element.data for element in elements(pieces(), ("log", "entries"))]
    assert found == [b'{"a":1}', b'{"b":[[2]]}']


def test_the_fingerprint_of_a_file_without_times_is_computed_once(tmp_path: Path) -> None:
    digested = []

    def fingerprint() -> str:
        digested.append("once")
        return "f"

    transcript = TranscriptBuilder(
        Packer(tmp_path, "x"),
        policy("none"),
        source={"format": "jsonrpc", "missing": []},
        restarts=True,
        fingerprint=fingerprint,
        tally=Tally(),
    )
    begin = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize"}).encode()
    for line in range(50):
        transcript.put(Item("message", line, Connection("s"), data=begin))
    transcript.finish()
    assert transcript.recordings == 50
    assert digested == ["once"]


def test_recordings_share_files_up_to_a_size_and_none_is_divided(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(packer, "FILE_BYTES", 20)
    files = Packer(tmp_path, "x")
    for line in (b"a1\n", b"b1\n", b"a2" * 10 + b"\n", b"c1\n", b"b2\n"):
        files.put(line[:1].decode(), line)
    files.end("a")
    written = [read_lines(path) for path in files.publish()]
    lines = [b"".join(run.data for run in runs if isinstance(run, LineRun)) for runs in written]
    assert lines == [b"a1\nb1\n" + b"a2" * 10 + b"\nb2\n", b"c1\n"]
