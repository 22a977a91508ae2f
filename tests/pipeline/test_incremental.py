"""Incremental runs: only what changed is scored again, and the tables equal those of a full run."""

import gzip
import itertools
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import mcptally as mt
from mcptally.pipeline import carry_over, fingerprint
from mcptally.tables.calls import Calls
from mcptally.tables.seed_scores import SeedScores
from tests.kept_folder import KeptFolder
from tests.pipeline.golden import TRACES
from tests.stored_tables import assert_equal, assert_same, tables
from tests.transcripts import (
    c2s,
    call,
    event,
    exchange,
    lines_of,
    opened,
    request,
    result,
    s2c,
    text,
    write,
)

pytestmark = pytest.mark.slow


def assert_as_full_run(store: Path, files: Iterable[Path], folder: Path, **how: Any) -> None:
    """Assert that a store equals that of a full run over the same files."""
    anew = folder / "anew"
    shutil.rmtree(anew, ignore_errors=True)
    mt.score(list(files), out=anew, **how)
    assert_same(store, anew)
    ours, theirs = (json.loads((path / "store.json").read_text()) for path in (store, anew))
    assert ours["rows"] == theirs["rows"]
    same = ("file", "size", "digest")
    assert [[row[key] for key in same] for row in ours["archive"]] == [
        [row[key] for key in same] for row in theirs["archive"]
    ]


# --- packages that rows depend on ----------------------------------------------------------------

WITHOUT_EFFECT = {
    "blake3": "digests of files",
    "scipy": "intervals in answers to questions",
    "zstandard": "decompression, which is lossless",
    "mcp-types": "message schemas were generated from it into a file",
    "pydantic": "as mcp-types",
}


def test_every_imported_package_that_may_change_rows_is_part_of_the_digest():
    folder = Path(mt.__file__).parent
    files = [folder / name for name in fingerprint.deciding_files(folder) if name.endswith(".py")]
    statement = r"^ *(?:from (\w+)\S* import \S.*|import (\w+)\S*(?: as \w+)?)$"
    imported = re.compile(statement, re.MULTILINE)
    pairs = (imported.findall(path.read_text(encoding="utf-8")) for path in files)
    names = {name for found in pairs for pair in found for name in pair if name}
    packages = names - sys.stdlib_module_names - {"mcptally"}
    known = metadata.packages_distributions()
    found = {known.get(name, [name])[0].replace("_", "-") for name in packages}
    assert found - WITHOUT_EFFECT.keys() == {*fingerprint.DECIDING_PACKAGES}


# --- archives whose recordings depend on each other ----------------------------------------------

MINUTE = 60 * 10**9


def asked(id_: Any, tool: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return a call to the server's own validation."""
    return request(id_, "tools/call", name="validate", arguments={"tool": tool, "arguments": given})


def recording_of(
    name: str, *said: tuple[int, Callable[..., dict[str, Any]], Any], server: str = "demo"
) -> list[dict[str, Any]]:
    """A recording of a server: minute, side and message of each event."""
    begin = 1_700_000_000_000_000_000
    events = [opened(name, server=server)]
    for minute, side, msg in said:
        seq = len(events)
        events.append(side(seq, msg, name) | {"ts_ns": begin + minute * MINUTE + seq})
    return events


def recording(name: str, seed: int) -> list[dict[str, Any]]:
    """A random recording of one of two servers: it may list tools, fail, or validate arguments.

    The verdicts on calls in other recordings depend on it: on the definition in force, on an outage
    at that time, on the usual form of results, on rare arguments.
    """
    chance = random.Random(seed)
    server = chance.choice(["demo", "other"])
    said: list[tuple[int, Callable[..., dict[str, Any]], Any]] = []
    id_, at = 0, chance.randrange(4)
    if chance.random() < 0.4:
        schema = {"type": "object", "required": chance.sample(["x", "y"], 1)}
        tools = [
            {"name": tool, "description": f"version {chance.randrange(2)}", "inputSchema": schema}
            for tool in ("a", "b")
        ]
        said.append((at, c2s, request("l", "tools/list")))
        said.append((at, s2c, result("l", tools=tools)))
    down = chance.random() < 0.4
    for _ in range(chance.randrange(2, 12)):
        id_ += 1
        at += chance.random() < 0.2
        tool = chance.choice(["a", "b", "c", "d"])
        given = {key: chance.randrange(2) for key in chance.sample(["x", "y", "z"], 2)}
        if chance.random() < 0.15:
            said.append((at, c2s, asked(id_, tool, given)))
            verdict = {"valid": chance.random() < 0.5, "errors": [], "warnings": []}
            said.append((at, s2c, text(id_, json.dumps(verdict))))
            continue
        said.append((at, c2s, call(id_, tool, **given)))
        if down or chance.random() < 0.2:
            words = chance.choice(["Failed to load items", "Error executing tool", "x not found"])
            said.append((at, s2c, text(id_, words, isError=True)))
        else:
            words = chance.choice(['{"ok": 1}', '{"ok": 1}', '{"ok": 1}', "Could not load it", "x"])
            said.append((at, s2c, text(id_, words)))
    events = recording_of(name, *said, server=server)
    if chance.random() < 0.7:
        events.append(event("close", len(events), name, reason="eof", exit_code=0))
    return events


OPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "grow", "remove", "segment"]),
        st.integers(0, 5),
        st.integers(0, 400),
    ),
    min_size=3,
    max_size=6,
)


def arrive(folder: Path, ops: list[tuple[str, int, int]]) -> Iterator[list[Path]]:
    """Yield the files of the archive after each operation."""
    for what, place, seed in ops:
        path = folder / f"{place}.jsonl"
        if what == "put" or not path.exists():
            write(path, recording(f"r{place}", seed))
        elif what == "grow":
            before = path.read_bytes()
            count = before.count(b"\n")
            more = recording(f"r{place}", seed)[1:4]
            write(path, [before, *(each | {"seq": count + n} for n, each in enumerate(more))])
        elif what == "segment":
            count = path.read_bytes().count(b"\n")
            more = recording(f"r{place}", seed)[1:6]
            begin = opened(f"r{place}", segment=1) | {"seq": count}
            rest = (each | {"seq": count + 1 + n} for n, each in enumerate(more))
            write(folder / f"{place}.1.jsonl", [begin, *rest])
        elif len(list(folder.glob("*.jsonl"))) > 1:
            path.unlink()
        yield sorted(folder.glob("*.jsonl"))


EACH_OPERATION = [
    *(("put", 0, 1), ("put", 1, 2), ("grow", 0, 4)),
    *(("segment", 1, 5), ("put", 1, 6), ("remove", 0, 0)),
]


@settings(phases=[Phase.generate] if settings.default.max_examples > 100 else [Phase.explicit])
@given(OPS)
@example(EACH_OPERATION)
def test_after_changes_of_an_archive_the_tables_equal_a_full_run(tmp_path_factory, ops):
    """After each kind of change; `HYPOTHESIS_PROFILE=explore` makes random ones."""
    folder = tmp_path_factory.mktemp("archive")
    store = tmp_path_factory.mktemp("store") / "store"
    for files in itertools.islice(arrive(folder, ops), 1, None):
        summary = mt.score(files, out=store)
        assert summary.in_full is None
    assert_as_full_run(store, files, tmp_path_factory.mktemp("anew"))


def test_recordings_split_over_random_files_are_put_together(tmp_path: Path):
    """Recordings in several files, and files with several recordings."""
    files = [tmp_path / f"{number}.jsonl" for number in range(6)]
    chance = random.Random(3)
    lines: dict[Path, list[bytes]] = {path: [] for path in files}
    for name in ("everything-tasks.jsonl.zst", "memory.jsonl.zst", "time.jsonl"):
        home = chance.choice(files)
        for line in lines_of(TRACES / name):
            home = chance.choice(files) if chance.random() < 0.02 else home
            lines[home].append(line)
    for path, held in lines.items():
        path.write_bytes(b"".join(held))
    for count in (3, 6):
        mt.score(files[:count], out=tmp_path / "store")
    assert_as_full_run(tmp_path / "store", files, tmp_path)


def calls_of(tool: str, minute: int, *answers: Any, **given: Any) -> list[Any]:
    """Calls to a tool in a minute, each answered."""
    return [
        each
        for answer in answers
        for each in (
            (minute, c2s, call(f"{tool}{minute}", tool, **given)),
            (minute, s2c, answer | {"id": f"{tool}{minute}"}),
        )
    ]


FAILS = text(0, "Failed to load items", isError=True)
FINE = text(0)
JSON = text(0, '{"items": []}')
LISTS = {"tools": [{"name": "a", "inputSchema": {"type": "object", "required": ["x"]}}]}

DEPENDS = {
    "everything failed at that time": (
        # Half of the other tools' calls fail, before and after: only the time of failures changes.
        [*calls_of("a", 5, FAILS), *(e for t in "bcdefg" for e in calls_of(t, 90, FAILS, FINE))],
        [e for t in "bcdefg" for e in calls_of(t, 5, FAILS) + calls_of(t, 200, FINE)],
        "rule",
    ),
    "what form results usually have": (
        calls_of("a", 5, JSON, JSON, text(0, "page 3: invalid")),
        calls_of("a", 90, *[JSON] * 20),
        "hidden_rule",
    ),
    "which arguments are rare": (
        calls_of("a", 5, FINE, x=1),
        calls_of("a", 90, *[FINE] * 50, y=1),
        "scenario",
    ),
    "which definition was in force": (
        calls_of("a", 5, FINE),
        [
            (90, c2s, request("l", "tools/list")),
            (90, s2c, result("l", **LISTS)),
        ],
        "definition",
    ),
    "how often the tool works": (
        calls_of("a", 5, FAILS),
        calls_of("a", 90, *[FINE] * 4),
        "evidence",
    ),
    "how often the server's other tools work": (
        calls_of("a", 5, FAILS),
        calls_of("b", 90, *[FAILS] * 5),
        "evidence",
    ),
    "whether it was said to be valid": (
        calls_of("a", 5, FINE, x=1),
        [
            (4, c2s, asked(1, "a", {"x": 1})),
            (4, s2c, text(1, '{"valid": false, "errors": ["no"], "warnings": []}')),
        ],
        "validated_as",
    ),
}


OUTAGE = "everything failed at that time"


class Rescored(NamedTuple):
    """The calls of a case after its later recording was added, and after it was removed."""

    before: list[Any]
    during: list[Any]
    after: list[Any]
    reused: tuple[int, int]
    """Files whose rows both runs reused."""
    folder: Path


def rescored(folder: Path, names: Sequence[str]) -> dict[str, Rescored]:
    """Return the results of these cases, each with its own server, from one archive."""
    write(folder / "bystander.jsonl", [opened("r", server="another")])
    for number, name in enumerate(names):
        events = recording_of(f"r{number}", *DEPENDS[name][0], server=f"s{number}")
        write(folder / f"{number}.jsonl", events)
    again(folder)

    def columns() -> list[list[Any]]:
        return [
            values(folder / "store", f"r{number}", DEPENDS[name][2])
            for number, name in enumerate(names)
        ]

    before = columns()
    for number, name in enumerate(names):
        events = recording_of(f"later{number}", *DEPENDS[name][1], server=f"s{number}")
        write(folder / f"later{number}.jsonl", events)
    first = again(folder).reused
    during = columns()
    shutil.copytree(folder / "store", folder / "during")
    (folder / "later").mkdir()
    for path in folder.glob("later*.jsonl"):
        path.rename(folder / "later" / path.name)
    reused = (first, again(folder).reused)
    rows = zip(names, before, during, columns(), strict=True)
    return {name: Rescored(*each, reused, folder) for name, *each in rows}


@pytest.fixture(scope="module")
def depending(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rescored]:
    """All cases. An outage affects all servers, so that case has its own archive."""
    others = [name for name in DEPENDS if name != OUTAGE]
    return {
        **rescored(tmp_path_factory.mktemp("outage"), [OUTAGE]),
        **rescored(tmp_path_factory.mktemp("others"), others),
    }


@pytest.mark.parametrize("name", DEPENDS)
def test_a_call_is_scored_again_when_another_recording_changes_its_context(depending, name):
    """And again when that recording is removed."""
    found = depending[name]
    assert found.before != found.during
    assert found.after == found.before
    assert found.reused == (1, 1), "of the file of another server alone"


@pytest.mark.parametrize("name", [OUTAGE, "which arguments are rare"], ids=["outage", "others"])
def test_the_tables_of_calls_whose_context_changed_equal_those_of_a_full_run(depending, name):
    folder = depending[name].folder
    for path in (folder / "later").iterdir():
        path.rename(folder / path.name)
    assert_as_full_run(folder / "during", sorted(folder.glob("*.jsonl")), folder)


def test_a_call_is_not_scored_again_while_the_records_stay_in_their_bands(tmp_path: Path):
    calls = [each for tool in "ab" for each in calls_of(tool, 90, *[FINE] * 8, FAILS)]
    write(tmp_path / "first.jsonl", recording_of("r1", *calls_of("a", 5, FAILS), *calls))
    again(tmp_path)
    write(tmp_path / "later.jsonl", recording_of("r2", *calls_of("a", 200, FINE, FINE)))
    assert again(tmp_path).reused == 1
    assert_as_full_run(tmp_path / "store", sorted(tmp_path.glob("*.jsonl")), tmp_path)


def values(store: Path, recording: str, column: str) -> list[Any]:
    """A column of the calls of a recording, or of their seed scores."""
    name = Calls.name if column in Calls.columns() else SeedScores.name
    rows = pl.read_parquet(store / name / "*.parquet").filter(recording=recording).sort("seq")
    return rows.get_column(column).to_list()


def test_recordings_that_are_still_written_are_scored_as_far_as_they_go(tmp_path: Path):
    """A transcript grows, even by part of a line, and then a second segment begins."""
    (tmp_path / "still.jsonl").write_bytes((TRACES / "time.jsonl").read_bytes()[:20_000])
    grows = tmp_path / "grows.jsonl"
    lines = lines_of(TRACES / "sqlite.jsonl.zst")
    written = b"".join(lines)
    first = json.loads(lines[0])["recording"].encode()
    last = max(number for number, line in enumerate(lines) if first in line[:200])
    for size in (40_001, len(b"".join(lines[: last // 2]))):
        grows.write_bytes(written[:size])
        again(tmp_path)
    (tmp_path / "later.jsonl").write_bytes(b"".join(lines[last // 2 :]))
    assert again(tmp_path).reused == 1
    assert_as_full_run(tmp_path / "store", sorted(tmp_path.glob("*.jsonl")), tmp_path)


# --- what is reused, and what is not --------------------------------------------------------------


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory: pytest.TempPathFactory) -> KeptFolder:
    def make(folder: Path) -> None:
        for number in range(3):
            name = f"r{number}"
            calls = [each for n in range(4) for each in (call(n, x=n), text(n))]
            begin = opened(name, server=f"s{number}")
            write(folder / f"{number}.jsonl", [begin, *exchange(*calls, recording=name)])
        mt.score(sorted(folder.glob("*.jsonl")), out=folder / "store")

    return KeptFolder(tmp_path_factory.mktemp("scored"), make)


@pytest.fixture
def scored(scored_once: KeptFolder) -> Path:
    """An archive of three recordings of three servers, and its store."""
    return scored_once.restore()


def again(folder: Path, **how: Any) -> Any:
    return mt.score(sorted(folder.glob("*.jsonl*")), out=folder / "store", **how)


def inodes(store: Path) -> set[int]:
    return {path.stat().st_ino for path in (store / "calls").glob("*.parquet")}


def test_a_file_with_other_times_is_reused_and_then_not_even_opened(scored: Path):
    before = inodes(scored / "store")
    for path in scored.glob("*.jsonl"):
        os.utime(path, ns=(0, 10**18))
    assert again(scored).reused == 3  # it reads the files, and stores the new times
    assert inodes(scored / "store") == before
    manifest = json.loads((scored / "store" / "store.json").read_text())
    assert all(row["digest"] for row in manifest["archive"])
    assert again(scored).reused == 3


def test_a_run_with_nothing_new_does_not_write_to_the_store(scored: Path):
    store = scored / "store"
    first = mt.score(sorted(scored.glob("*.jsonl")), out=store, full=True)
    assert (first.reused, first.in_full) == (0, None)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    found = again(scored)
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before
    assert found == msgspec.structs.replace(first, reused=3)


def test_a_finding_about_a_path_goes_when_the_path_is_gone(scored: Path):
    (scored / "traces").mkdir()
    for path in sorted(scored.glob("*.jsonl")):
        path.rename(scored / "traces" / path.name)
    link = scored / "traces" / "link"
    link.symlink_to(scored)
    for expected in (1, 1, 0):
        if not expected:
            link.unlink()
        mt.score([scored / "traces"], out=scored / "store")
        rules = tables(scored / "store")["findings"].get_column("rule").to_list()
        assert rules.count("archive.not_followed") == expected


def test_files_with_other_bytes_another_name_or_a_compression_are_scored_again(tmp_path: Path):
    """The file with changed bytes keeps its size. Only rows of removed files are removed."""
    names = ("stays", "changes", "moves", "shrinks", "goes")
    for name in names:
        talk = exchange(call(1), text(1), recording=name)
        write(tmp_path / f"{name}.jsonl", [opened(name, server=name), *talk])
    again(tmp_path)
    _, changes, moves, shrinks, goes = (tmp_path / f"{name}.jsonl" for name in names)
    changes.write_bytes(changes.read_bytes().replace(b"fine", b"FINE"))
    moves.rename(tmp_path / "moved.jsonl")
    (tmp_path / "shrinks.jsonl.gz").write_bytes(gzip.compress(shrinks.read_bytes()))
    shrinks.unlink()
    goes.unlink()
    assert again(tmp_path).reused == 1
    assert_as_full_run(tmp_path / "store", sorted(tmp_path.glob("*.jsonl*")), tmp_path)


def test_a_file_that_grew_while_it_was_read_is_read_again(scored: Path):
    manifest = json.loads((scored / "store" / "store.json").read_text())
    manifest["archive"][0]["whole"] = False
    (scored / "store" / "store.json").write_text(json.dumps(manifest))
    assert again(scored).reused == 2


def test_files_without_a_recording_can_be_added_and_removed(scored: Path):
    without = tables(scored / "store")
    (scored / "broken.jsonl").write_text("{\n")
    (scored / "empty.jsonl").write_text("")
    again(scored)
    assert again(scored).reused == 5
    assert_as_full_run(scored / "store", sorted(scored.glob("*.jsonl")), scored)
    for name in ("broken.jsonl", "empty.jsonl"):
        (scored / name).unlink()
    assert again(scored).reused == 3
    assert_equal(tables(scored / "store"), without)


def test_many_small_runs_leave_few_parts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(carry_over, "MANY", 2)
    for number in range(3):
        name = f"r{number}"
        events = recording_of(name, *calls_of("a", 5, FINE, FAILS, x=1), server=name)
        write(tmp_path / f"{number}.jsonl", events)
        again(tmp_path, payloads=False)
    assert len(list((tmp_path / "store" / "calls").glob("*.parquet"))) == 2
    files = sorted(tmp_path.glob("*.jsonl"))
    assert_as_full_run(tmp_path / "store", files, tmp_path, payloads=False)


def test_without_payloads_summaries_hold_no_arguments(tmp_path: Path):
    said = {"secret": "the argument that nobody may keep"}
    valid = text(1, '{"valid": true, "errors": [], "warnings": []}')
    talk = exchange(asked(1, "a", said), valid, call(2, "a", **said), text(2))
    write(tmp_path / "0.jsonl", [opened(), *talk])
    again(tmp_path, payloads=False)
    for path in (tmp_path / "store").rglob("*.parquet"):
        frame = pl.read_parquet(path)
        assert b"nobody may keep" not in frame.write_json().encode(), path


# --- when nothing is reused ----------------------------------------------------------------------


def _rules(folder: Path) -> dict[str, Any]:
    """A rule file that disables a rule."""
    (folder / "rules.toml").write_text('[[rule]]\nid = "verdict.context.outage"\ndisabled = true\n')
    return {"rules": folder / "rules.toml"}


def _with_manifest(**fields: Any) -> Callable[[Path], dict[str, Any]]:
    def change(folder: Path) -> dict[str, Any]:
        path = folder / "store" / "store.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
        return {}

    return change


IN_FULL = {
    "other rules": (_rules, "rules or scenarios"),
    "without payloads": (lambda _: {"payloads": False}, "payloads"),
    "another mcptally": (_with_manifest(code="x"), "another version of mcptally"),
    "another format": (_with_manifest(format=99), "is a store of format 99"),
}


@pytest.mark.parametrize(("change", "why"), IN_FULL.values(), ids=IN_FULL)
def test_rows_with_another_provenance_are_not_reused(scored: Path, change, why):
    before = tables(scored / "store")
    how = change(scored)
    summary = again(scored, **how)
    assert summary.in_full is not None
    assert why in summary.in_full
    assert summary.reused == 0
    if how:
        assert again(scored, **how).reused == 3
    else:
        assert_equal(tables(scored / "store"), before)


def test_a_file_that_the_manifest_does_not_list_is_not_read_and_is_removed(scored: Path):
    store = scored / "store"
    rows = tables(store)
    for path in [*(store / "calls").iterdir(), *(store / ".known" / "minutes").iterdir()]:
        shutil.copyfile(path, path.with_name(f"left-{path.name}"))
    before = sorted(path for path in store.rglob("*.parquet") if "left" not in path.name)
    calls = mt.open_store(store).sql("SELECT count(*), count(DISTINCT call_id) FROM calls")
    [(every, once)] = calls.fetchall()
    assert every == once
    assert again(scored).reused == 3
    kept = sorted(store.rglob("*.parquet"))
    assert not [path for path in kept if "left" in path.name]
    # Every run writes `tools` and the files of empty tables again.
    rewritten = {path.name.partition("-")[0] for path in set(before) - set(kept)}
    assert rewritten <= {"tools", "empty"}
    assert_equal(tables(store), rows)
