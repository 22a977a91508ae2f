"""Killed runs, full disks, unreadable files and damaged stores."""

import asyncio
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner
from mcp.client.client import Client

import mcptally as mt
from mcptally.analytics.store import retry_if_replaced
from mcptally.cli import cli
from mcptally.errors import McptallyError, StoreError
from mcptally.output.mcp_server import server
from mcptally.pipeline import fingerprint
from tests.output.test_mcp_server import rows, talk
from tests.pipeline import faults
from tests.pipeline.test_incremental import assert_as_full_run
from tests.stored_tables import assert_same
from tests.transcripts import call, exchange, opened, text, write

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


# --- killed ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Path:
    """The stores of undisturbed runs, `before` and `after` files were added."""
    folder = tmp_path_factory.mktemp("scored")
    mt.score(faults.BEFORE, out=folder / "before")
    mt.score(faults.AFTER, out=folder / "after")
    return folder


PUBLISH = {
    *("os.mkdir work folder", "os.rmdir work folder", "open work folder"),
    *("os.mkdir table", "os.rename table, work folder", "os.remove table"),
    *("open manifest", "os.rename manifest", "os.remove views", "os.rename views"),
}
"""Kinds of steps that every command that writes a store has."""
STEPS = {
    "score": PUBLISH,
    "merge": PUBLISH | {"os.link other store, work folder"},
}


@pytest.mark.parametrize("command", STEPS)
def test_before_changes_of_each_kind_the_store_is_the_old_one_or_the_new_one(
    tmp_path: Path, command: str
):
    """Some steps of each kind, and the next run after a third of them.

    `merge` publishes as `score` does: the first step of each kind is enough.
    `python -m tests.pipeline.faults` checks all steps.
    """
    chosen = {1, 16 if command == "score" else 1}
    found = faults.after_each_step(command, tmp_path, chosen.__contains__, rerun_every=3)
    assert {kind for kind, _ in found} == STEPS[command]
    left = [store for _, store in found]
    assert set(left) == {"the old store", "the new store"}
    # There is one step that replaces the store.
    assert left == sorted(left, key=["the old store", "the new store"].index)


def test_a_first_run_that_was_killed_says_what_to_do(tmp_path: Path):
    (tmp_path / "store" / ".work").mkdir(parents=True)
    with pytest.raises(StoreError, match="start the same command again") as raised:
        mt.open_store(tmp_path / "store")
    assert "mcptally merge STORES -o" in str(raised.value)


def test_a_damaged_merged_store_says_to_merge_again(tmp_path: Path, scored: Path):
    """The transcripts may be on another machine."""
    mt.merge_stores([scored / "before"], out=tmp_path / "all")
    for path in (tmp_path / "all" / "calls").iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="merge the stores again: mcptally merge STORES -o"):
        mt.open_store(tmp_path / "all")


# --- read while it is replaced -------------------------------------------------------------------


@pytest.fixture
def replaced(tmp_path: Path, scored: Path) -> Path:
    return shutil.copytree(scored / "before", tmp_path / "store")


COUNT = "SELECT count(*) FROM calls"


def test_an_open_store_answers_from_the_store_that_replaced_it(replaced: Path, scored: Path):
    wanted = mt.open_store(scored / "after").sql(COUNT).fetchall()
    opened_before = mt.open_store(replaced)
    assert opened_before.sql(COUNT).fetchall() != wanted
    mt.score(faults.AFTER, out=replaced, full=True)
    assert opened_before.sql(COUNT).fetchall() == wanted
    assert opened_before.manifest["rows"]["calls"] == wanted[0][0]


def test_a_query_whose_files_were_removed_is_run_again(replaced: Path, scored: Path):
    wanted = mt.open_store(scored / "after").sql("SELECT max(line) FROM calls").fetchall()
    store = mt.open_store(replaced)
    runs = [lambda: mt.score(faults.AFTER, out=replaced, full=True)]

    def ask() -> list[tuple[int]]:
        answer = store.sql("SELECT max(line) FROM calls")
        if runs:
            runs.pop()()  # removes the files that `answer` names
        return answer.fetchall()

    assert retry_if_replaced([store], ask) == wanted
    runs.append(lambda: mt.score(faults.AFTER, out=replaced, full=True))
    with pytest.raises(duckdb.IOException):  # without `steadily`
        ask()


def test_a_served_store_is_replaced_without_an_error_or_a_mixed_answer(
    replaced: Path, scored: Path
):
    query = "SELECT count(*) AS n, max(line) AS line, sum(length(response))::BIGINT AS s FROM calls"
    states = [
        [
            {key: str(value) for key, value in row.items()}
            for row in mt.open_store(scored / name).sql(query).pl().to_dicts()
        ]
        for name in ("before", "after")
    ]

    async def conversation() -> list[Any]:
        async with Client(server(replaced, seconds=300)) as client:
            found = []
            for files in (faults.AFTER, faults.BEFORE):
                # The first two calls start the processes that answer.
                scoring = asyncio.to_thread(mt.score, files, out=replaced, full=True)
                asked = [client.call_tool("sql", {"query": query}) for _ in range(4)]
                _, *answers = await asyncio.gather(scoring, *asked)
                found += [*answers, await client.call_tool("sql", {"query": query})]
                expected = states[files == faults.AFTER]
                assert rows(found[-1]) == expected
            return found

    for answer in asyncio.run(conversation()):
        assert not answer.is_error, answer.content
        assert rows(answer) in states


def test_a_store_that_is_replaced_again_and_again_is_an_error_with_advice(replaced: Path):
    store = mt.open_store(replaced)

    def ask() -> None:
        (replaced / "store.json").touch()

    with pytest.raises(StoreError, match="try again when no run writes to it"):
        retry_if_replaced([store], ask, consistent=True)


# --- no room -------------------------------------------------------------------------------------

LIMITED = """
import resource, signal, sys
sys.dont_write_bytecode = True  # the limit would cut the cached modules of Python
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from mcptally.cli import main
if __name__ == "__main__":
    sys.argv = ["mcptally", *sys.argv[2:]]
    main()
"""


def test_a_full_disk_is_an_error_and_leaves_the_store_as_it_was(tmp_path: Path, scored: Path):
    store = tmp_path / "store"
    shutil.copytree(scored / "before", store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    words = ["score", *map(str, faults.AFTER), "-o", str(store), "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "20000", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be written" in done.stderr
    assert "it is as it was before" in done.stderr
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


# --- read errors --------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file whose reading fails")
def test_a_file_that_cannot_be_read_is_a_finding_and_does_not_end_the_run(tmp_path: Path):
    """Reading the beginning of /proc/self/mem gives an input/output error."""
    bad = tmp_path / "bad.jsonl"
    bad.symlink_to("/proc/self/mem")
    good = write(tmp_path / "good.jsonl", [opened(), *exchange(call(1), text(1))])
    summary = mt.score([bad, good], out=tmp_path / "store")
    assert summary.rows["calls"] == 1
    found = pl.read_parquet(tmp_path / "store" / "findings" / "*.parquet")
    assert found.filter(file=str(bad), about="file").height > 0
    again = mt.score([bad, good], out=tmp_path / "store")
    assert again.reused == 1
    bad.unlink()
    shutil.copyfile(good, bad)
    mt.score([bad, good], out=tmp_path / "store")
    assert_as_full_run(tmp_path / "store", [bad, good], tmp_path)


# --- damaged stores -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An archive, and its store in two parts."""
    folder = tmp_path_factory.mktemp("whole")
    chance = random.Random(5)  # so that the damage is the same each time
    for name in "ab":
        said = []
        for n in range(60):
            said += [call(n, x=chance.randbytes(8).hex()), text(n, chance.randbytes(40).hex())]
        write(folder / f"{name}.jsonl", [opened(name), *exchange(*said, recording=name)])
    mt.score(folder, out=folder / "store", partition_bytes=1)
    assert len(list((folder / "store" / "calls").glob("*.parquet"))) == 2
    return folder


def part(store: Path, folder: str, number: int) -> Path:
    """Return the file of a part in a store's folder."""
    return next((store / folder).glob(f"{number:06d}-*.parquet"))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    """Change bytes in every page, but not the length and the end."""
    data = bytearray(path.read_bytes())
    for place in range(50, len(data) * 3 // 4, 37):
        data[place] ^= 0xFF
    path.write_bytes(data)


DAMAGE = {
    "cut short": (_cut, "is damaged"),
    "empty": (lambda path: path.write_bytes(b""), "is damaged"),
    "gone": (lambda path: path.unlink(), "cannot be read"),
    "other bits": (_flip, "is damaged"),
}
COMMANDS = {
    "query": ["query", "STORE", "SELECT sum(length(response)), max(session) FROM calls"],
    "a question": ["query", "STORE", "slowest_calls"],
    "show": ["show", "STORE", "CALL"],
    "compare": ["compare", "WHOLE", "STORE"],
    "report": ["report", "STORE", "-o", "OUT"],
    "export": ["export", "STORE", "--to", "csv", "-o", "OUT"],
}


@pytest.fixture
def store(tmp_path: Path, whole: Path) -> Path:
    shutil.copytree(whole / "store", tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("command", "kind"),
    [*(("query", kind) for kind in DAMAGE), *((name, "other bits") for name in [*COMMANDS][1:])],
)
def test_a_damaged_file_is_named_with_advice(whole, store: Path, command: str, kind: str):
    path = part(store, "calls", 1)
    rows = pl.read_parquet(path)
    damage, words = DAMAGE[kind]
    damage(path)
    stand_for = {
        "STORE": f"{store}",
        "WHOLE": f"{whole / 'store'}",
        "OUT": f"{store.parent / 'out'}",
        "CALL": rows["call_id"][0],
    }
    done = CliRunner().invoke(cli, [stand_for.get(word, word) for word in COMMANDS[command]])
    assert isinstance(done.exception, McptallyError), done.exception
    assert f"{path}: {words}" in str(done.exception)
    assert f"mcptally score ARCHIVE -o {store}" in str(done.exception)


def test_doctor_names_a_damaged_file_and_the_next_run_replaces_it(whole, store: Path):
    path = part(store, "findings", 1)
    intact = path.read_bytes()
    for damage, _ in DAMAGE.values():
        path.write_bytes(intact)
        damage(path)
        done = CliRunner().invoke(cli, ["doctor", "--store", f"{store}"])
        assert done.exit_code == 1
        assert f"findings/{path.name}" in done.output.replace("\n", "").replace(" ", "")
    summary = mt.score(whole, out=store)
    assert f"findings/{path.name}" in str(summary.in_full)
    assert_same(store, whole / "store")


def test_a_damaged_summary_does_not_prevent_queries(store: Path, whole: Path):
    path = part(store, ".known/minutes", 0)
    _cut(path)
    mt.open_store(store).sql("SELECT count(*) FROM calls").fetchall()
    summary = mt.score(whole, out=store)
    assert f"minutes/{path.name}" in str(summary.in_full)


def test_serve_answers_with_an_error_if_the_store_is_damaged(store: Path):
    _flip(part(store, "calls", 0))
    _flip(part(store, "calls", 1))
    [answer] = talk(store.parent, ("sql", {"query": "SELECT sum(length(response)) FROM calls"}))
    assert answer.is_error


def test_a_store_with_a_truncated_file_is_not_served(store: Path):
    _cut(part(store, "calls", 0))
    with pytest.raises(StoreError, match="is damaged"):
        server(store)


def test_an_error_in_a_query_is_not_reported_as_damage(store: Path):
    done = CliRunner().invoke(cli, ["query", f"{store}", "SELECT nothing FROM calls"])
    assert "damaged" not in str(done.exception)


def test_a_truncated_manifest_is_replaced_by_the_next_run(store: Path, whole: Path):
    _cut(store / "store.json")
    with pytest.raises(StoreError, match="cannot be read"):
        mt.open_store(store)
    assert "cannot be read" in str(mt.score(whole, out=store).in_full)


def test_sql_is_not_taken_for_a_store_that_may_be_damaged(store: Path):
    fingerprint.refuse_damaged(["query", str(store), f"SELECT {'1, ' * 200} 1 FROM calls"])
