"""A run on Dask writes the same tables as a local run, even if workers die."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import click.testing
import polars as pl
import pytest
from polars.testing import assert_frame_equal

pytest.importorskip("distributed", reason="needs mcptally[dask]")

import dask

import mcptally as mt
from mcptally.cli import cli
from mcptally.errors import McptallyError, UnreadableError, UsageError
from mcptally.pipeline import engines
from mcptally.pipeline.engines import dask as dask_engine
from mcptally.pipeline.engines import dask_tasks
from mcptally.pipeline.engines.dask import DaskPool
from mcptally.pipeline.engines.worker import FinishSettings, Partition
from mcptally.pipeline.scoring import ScoringRules
from mcptally.store.work_folder import create_work_folder
from tests.pipeline.engines.clusters import QUIET, Machines, hold, machines, release
from tests.pipeline.golden import TRACES
from tests.pipeline.test_partitioning import scattered
from tests.shared_folder import shared_folder
from tests.stored_tables import assert_same, tables
from tests.wire.test_nesting import archive

FILES = [TRACES / f"{name}.jsonl.zst" for name in ("git", "memory", "sqlite")]
pytestmark = [*QUIET, pytest.mark.slow]
EACH = 1
"""A partition limit so low that each partition has one file."""


def made_here(factory: pytest.TempPathFactory, count: int) -> Path:
    """A store of the first files, made on this machine; no test changes it."""
    name = f"first-{count}"
    made = shared_folder(factory, name, lambda new: mt.score(FILES[:count], out=new / "store"))
    return made / "store"


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    return made_here(tmp_path_factory, 3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A cluster with two workers that stay alive."""
    with machines(tmp_path_factory.mktemp("pair"), workers=2) as found:
        yield found


def test_two_workers_write_the_tables_of_one_machine(tmp_path: Path, here: Path, pair: Machines):
    """The second of two runs scores only the new files."""
    said: list[tuple[int, int]] = []
    out = tmp_path / "store"
    mt.score(
        FILES[:2],
        out=out,
        engine="dask",
        scheduler=pair.address,
        partition_bytes=EACH,
        progress=lambda done, total: said.append((done, total)),
    )
    assert said == sorted(said)
    assert said[-1][0] > 0.9 * said[-1][1]
    again = mt.score(FILES, out=out, engine=pair.client, partition_bytes=EACH)
    assert again.reused > 0
    assert_same(out, here)
    assert again.rows["calls"] == pl.read_parquet(here / "calls" / "*.parquet").height
    assert not list(pair.folder.rglob("*.arrow")), "scratch files stayed on a worker"


def test_workers_score_only_the_selected_calls(tmp_path: Path, here: Path, pair: Machines):
    calls = tables(here)["calls"]
    tool = calls["tool"].drop_nulls().sort()[0]
    mt.score(FILES, out=tmp_path / "store", tools=[tool], engine=pair.client, partition_bytes=EACH)
    assert_frame_equal(tables(tmp_path / "store")["calls"], calls.filter(tool=tool))


def test_workers_read_split_broken_and_deeply_nested_files_as_this_machine_does(
    tmp_path: Path, pair: Machines
):
    files = archive(tmp_path / "files")
    scattered(files, FILES[1:], parts=2)
    (files / "cut.jsonl.zst").write_bytes(FILES[0].read_bytes()[:-20])
    (files / "noise.jsonl").write_bytes(b"\xff\xfe{]\n" * 9)
    (files / "empty.jsonl").touch()
    mt.score(files, out=tmp_path / "local")
    mt.score(files, out=tmp_path / "store", engine=pair.client, partition_bytes=200_000)
    assert_same(tmp_path / "store", tmp_path / "local")
    findings = tables(tmp_path / "store")["findings"]
    assert {"archive.empty_file", "archive.foreign_file"} <= set(findings["rule"])


def test_a_relative_archive_keeps_its_names(tmp_path: Path, pair: Machines, monkeypatch):
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "time.jsonl").write_bytes((TRACES / "time.jsonl").read_bytes())
    monkeypatch.chdir(tmp_path)
    mt.score("traces", out="store", engine=pair.client)
    assert set(tables(tmp_path / "store")["calls"]["file"]) == {str(Path("traces/time.jsonl"))}


def test_workers_that_are_killed_while_they_gather_and_after_it_change_no_table(
    tmp_path: Path, here: Path
):
    """Partitions that a dead worker had gathered are gathered again."""
    out = tmp_path / "store"
    with machines(tmp_path, workers=2) as found:

        def replace() -> None:
            found.add()  # it has gathered nothing
            found.kill(1)

        moments = [
            (lambda done, _: done > 0, lambda: found.kill(0)),
            (lambda done, total: 2 * done >= total, replace),
        ]

        def report(done: int, total: int) -> None:
            if moments and moments[0][0](done, total):
                moments.pop(0)[1]()

        mt.score(FILES, out=out, engine=found.client, partition_bytes=EACH, progress=report)
        assert [worker.poll() is None for worker in found.workers] == [False, False, True]
    assert_same(out, here)


def test_a_run_ends_when_a_partition_kills_its_workers_or_none_is_left(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(dask_engine, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(dask_engine, "EMPTY_CHECKS", 3)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        machines(tmp_path, workers=1) as fragile,
        DaskPool(fragile.client, create_work_folder(tmp_path / "store")) as pool,
    ):
        fragile.client.run(hold)
        batch = Partition(0, FILES[:1], 1000)
        asked = pool._submit(dask_tasks.gather, pool.run, batch)
        while not any(fragile.client.processing().values()):
            assert fragile.workers[0].poll() is None
        fragile.kill(0)
        with pytest.raises(McptallyError, match="1 workers died one after the other"):
            list(pool._results([asked]))
        with pytest.raises(McptallyError, match="no worker is left"):
            list(pool.gather([Partition(1, FILES[:1], 1000)]))


def test_a_task_that_runs_after_its_run_was_interrupted_leaves_no_files(
    tmp_path: Path, pair: Machines
):
    pair.client.run(hold)
    work = create_work_folder(tmp_path / "store")
    pool = DaskPool(pair.client, work)
    batch = Partition(0, FILES[:1], 1000)
    with contextlib.suppress(KeyboardInterrupt), pool:
        task = pool._submit(dask_tasks.gather, pool.run, batch)
        raise KeyboardInterrupt
    pair.client.run(release)
    assert "this run has ended" in str(task.exception())
    assert not list(pair.folder.rglob("*.arrow"))
    assert not list(work.rglob("*.parquet"))


def test_a_call_that_no_worker_answers_ends_after_a_time():
    with pytest.raises(TimeoutError, match="no answer in 0 s"):
        dask_engine._within(0, threading.Event().wait)


def test_an_interrupt_while_a_cluster_starts_is_handled_when_it_has_started():
    done = []

    def start() -> None:
        with dask_engine._interrupt_afterwards():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL, "a second one does not end it"
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_a_cluster_without_workers_is_an_error_with_advice(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(dask_engine, "CHECK_SECONDS", 0.1)
    with machines(tmp_path) as empty, pytest.raises(McptallyError, match="dask worker tcp://"):
        mt.score(FILES, out=tmp_path / "store", engine=empty.client)
    assert not (tmp_path / "store").exists()


def test_a_file_that_a_worker_does_not_find_is_named(tmp_path: Path, pair: Machines):
    with (
        DaskPool(pair.client, create_work_folder(tmp_path / "store")) as pool,
        pytest.raises(UnreadableError, match=r"gone\.jsonl: worker tcp://.* has no such file"),
    ):
        list(pool.gather([Partition(0, [tmp_path / "gone.jsonl"], 0)]))


def test_a_store_that_workers_do_not_see_is_refused(tmp_path: Path, pair: Machines):
    work = tmp_path / "elsewhere" / ".work" / "1"
    with pytest.raises(UsageError, match=r"does not see .*elsewhere: workers"):
        DaskPool(pair.client, work).__enter__()


def test_the_size_told_to_dask_is_the_cost_of_gathering_again(tmp_path: Path, pair: Machines):
    path = TRACES / "time.jsonl"
    with DaskPool(pair.client, create_work_folder(tmp_path / "store")) as pool:
        list(pool.gather([Partition(0, [path], path.stat().st_size)]))
        [(asked, _)] = pool.gathered.values()
        assert pair.client.nbytes([asked.key], summary=False)[asked.key] > path.stat().st_size


def test_a_file_that_changed_before_it_was_gathered_again_ends_the_run(
    tmp_path: Path, pair: Machines
):
    path = tmp_path / "growing.jsonl"
    path.write_bytes((TRACES / "time.jsonl").read_bytes())
    with DaskPool(pair.client, create_work_folder(tmp_path / "store")) as pool:
        list(pool.gather([Partition(0, [path], path.stat().st_size)]))
        for folder in pair.folder.rglob(pool.run.name):
            shutil.rmtree(folder)
        with path.open("ab") as file:
            file.write(b"\n")
        settings = FinishSettings(ScoringRules(), payloads=True)
        with pytest.raises(UnreadableError, match=r"growing\.jsonl: changed while"):
            list(pool.finish([0], lambda _: None, settings))


def test_a_worker_with_another_version_is_refused(tmp_path: Path):
    other = tmp_path / "site" / "mcptally-9.9.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: mcptally\nVersion: 9.9.0\n")
    with machines(tmp_path) as odd:
        odd.add(before=other.parent)
        with pytest.raises(UsageError, match=r"has mcptally 9\.9\.0.*pip install"):
            mt.score(FILES, out=tmp_path / "store", engine=odd.client)


@pytest.mark.parametrize("name", ["mcptally", "polars", "python"])
def test_each_task_checks_the_versions_of_its_worker(tmp_path: Path, pair: Machines, name: str):
    run = dask_tasks.DaskRun("x", tmp_path, None, {**dask_tasks.versions(), name: "0.0"})
    batch = Partition(0, [], 0)
    asked = pair.client.submit(dask_tasks.gather, run, batch, pure=False)
    with pytest.raises(UsageError, match=f"has {name} .* was started with 0.0"):
        asked.result()


def test_the_command_makes_a_cluster_of_its_own(tmp_path: Path):
    out = tmp_path / "store"
    command = [sys.executable, "-m", "mcptally", "score", str(FILES[1]), "-o", str(out)]
    run = subprocess.run(
        [*command, "--engine", "dask", "--jobs", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={key: value for key, value in os.environ.items() if not key.startswith("DASK_")},
    )
    assert run.returncode == 0, run.stderr
    assert "store: " in run.stderr
    assert "distributed" not in run.stderr
    assert pl.read_parquet(out / "calls" / "*.parquet").height > 10


def test_an_extra_that_is_missing_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, dask_engine.__name__)
    monkeypatch.delattr(engines, "dask")
    with pytest.raises(UsageError, match=r"pip install 'mcptally\[dask\]'"):
        mt.score(FILES, out=tmp_path / "store", engine="dask")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--scheduler", "tcp://127.0.0.1:1"], "--engine dask"),
        (["--engine", "dusk"], "dask"),
        (["--engine", "dask", "--scheduler", "inproc://nowhere"], "no Dask scheduler answers"),
        (["--engine", "dask", "--scheduler", "gone.json"], "no Dask scheduler answers"),
    ],
)
def test_an_engine_that_cannot_be_used_is_an_error(tmp_path: Path, arguments: list[str], says: str):
    out = tmp_path / "store"
    result = click.testing.CliRunner().invoke(
        cli, ["score", str(FILES[0]), "-o", str(out), *arguments]
    )
    assert result.exit_code != 0
    assert says in f"{result.output}{result.exception}"
    assert not out.exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"address": 5}'])
def test_a_file_that_is_not_a_scheduler_file_is_an_error(tmp_path: Path, content: str):
    file = tmp_path / "scheduler.json"
    file.write_text(content)
    with pytest.raises(McptallyError, match=r"no Dask scheduler answers at .*scheduler\.json"):
        mt.score(FILES[:1], out=tmp_path / "store", engine="dask", scheduler=str(file))


def test_a_misspelt_engine_gets_a_suggestion(tmp_path: Path):
    with pytest.raises(UsageError, match="did you mean dask"):
        mt.score(FILES, out=tmp_path / "store", engine="dsk")
