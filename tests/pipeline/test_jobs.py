"""Runs with several processes, and runs that fail or are stopped."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import mcptally as mt
from mcptally.errors import McptallyError, StoreError
from mcptally.pipeline.engines import local_engine
from mcptally.pipeline.engines.local import LocalEngine
from mcptally.pipeline.plan import (
    ONE_PROCESS,
    PARTITION,
    SINGLE_PROCESS,
    limit_for_archive,
    plan,
    sizes_of,
)
from mcptally.store.work_folder import working
from tests.pipeline.golden import TRACES
from tests.pipeline.test_partitioning import FILES, scattered
from tests.stored_tables import PLACES, assert_same

pytestmark = pytest.mark.slow


def test_two_processes_put_recordings_split_over_files_together(tmp_path: Path, sample_store):
    files = scattered(tmp_path, FILES, parts=4)
    mt.score(files, out=tmp_path / "store", jobs=2, partition_bytes=1_000_000)
    assert_same(tmp_path / "store", sample_store.path, *PLACES)


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_a_plan_holds_every_file_once_and_segments_together(tmp_path: Path, jobs: int):
    files = []
    for number in range(9):
        event = {"event": "stderr", "recording": f"r{number // 2}", "seq": number, "ts_ns": 1}
        path = tmp_path / f"{number}.jsonl"
        path.write_text(json.dumps(event) + "\n")
        files.append(path)
    parts = plan(sizes_of(files), limit=150, jobs=jobs)
    assert sorted(path for part in parts for path in part.files) == files
    assert len(parts) % jobs == 0 or len(parts) == 5
    for first, second in zip(files[0:8:2], files[1:8:2], strict=True):
        assert any({first, second} <= set(part.files) for part in parts)


def of_size(folder: Path, size: int) -> list[Path]:
    """Return four files that have this size together."""
    files = [folder / f"{number}.jsonl" for number in range(4)]
    for path in files:
        path.touch()
        os.truncate(path, size // 4)
    return files


@pytest.mark.parametrize(("size", "parts"), [(ONE_PROCESS - 4, 1), (ONE_PROCESS, 2)])
def test_two_processes_share_an_archive_only_if_it_is_large(tmp_path: Path, size: int, parts: int):
    assert len(plan(sizes_of(of_size(tmp_path, size)), jobs=2)) == parts


@pytest.mark.parametrize(
    ("size", "jobs", "limit", "partitions"),
    [
        (SINGLE_PROCESS * 3 // 2 - 4, 1, SINGLE_PROCESS, 1),
        (SINGLE_PROCESS * 3 // 2 + 4, 1, SINGLE_PROCESS, 2),
        (3 * PARTITION - 8, 2, PARTITION, 2),
        (3 * PARTITION + 4, 2, PARTITION, 4),
        (PARTITION + 4, 1, PARTITION, 2),  # the limit of --memory
    ],
)
def test_partitions_are_larger_if_each_process_then_has_one(
    tmp_path: Path, size: int, jobs: int, limit: int, partitions: int
):
    sizes = sizes_of(of_size(tmp_path, size))
    chosen = limit_for_archive(sum(sizes.values()), limit, jobs)
    assert len(plan(sizes, limit=chosen, jobs=jobs)) == partitions


@pytest.mark.parametrize(("size", "started"), [(ONE_PROCESS - 4, 0), (ONE_PROCESS, 1)])
def test_a_process_starts_before_the_run_if_the_archive_is_large(
    tmp_path: Path, size: int, started: int
):
    (tmp_path / "archive").mkdir()
    of_size(tmp_path / "archive", size)
    with contextlib.closing(local_engine([tmp_path / "archive"], jobs=2)) as engine:
        children = list(engine.children)
        assert len(children) == started
        with engine.pool(2, tmp_path, 0) as pool:
            assert pool.children[:started] == children


def test_a_process_gets_the_next_tasks_while_this_one_is_busy(tmp_path: Path):
    tasks = [("configure", (number,)) for number in range(20)]
    with LocalEngine(2).pool(2, tmp_path, 0) as pool:
        run = pool.run(tasks)
        process, first, _ = next(run)
        # This process does nothing until `run` is asked for more.
        done = [pool.answers.get(timeout=60).task for _ in range(19)]
    assert process == 0
    assert sorted([first, *done]) == tasks


class _HeldQueue(queue.SimpleQueue[Any]):
    """A queue whose `put` returns only when `released` is set, long after the item was taken."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        self.released.wait()

    def get(self, block: bool = True, timeout: float | None = 5) -> Any:
        return super().get(block, timeout)


def test_a_run_ends_with_the_last_answer_however_long_its_thread_is_interrupted(tmp_path: Path):
    tasks = [("configure", (number,)) for number in range(2)]
    with LocalEngine(2).pool(2, tmp_path, 0) as pool:
        held = _HeldQueue()
        pool.answers = pool.children[0].answers = held
        assert sorted(task for _, task, _ in pool.run(tasks)) == tasks
        held.released.set()


def test_ctrl_c_does_not_reach_a_process_that_is_starting_and_its_death_ends_the_run(
    tmp_path: Path,
):
    with LocalEngine(2).pool(2, tmp_path, 0) as pool:
        pid = pool.children[0].process.pid
        assert pid is not None
        os.kill(pid, signal.SIGINT)
        assert list(pool.run(own={1: [("configure", (None,))]}))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(McptallyError, match="smaller --jobs"):
            list(pool.run(own={1: [("discard", (1,))]}))


def test_an_error_in_a_child_process_or_in_sending_a_task_to_it_ends_the_run(tmp_path: Path):
    with LocalEngine(2).pool(2, tmp_path, 0) as pool:
        with pytest.raises(RuntimeError, match="AssertionError"):
            list(pool.run(own={1: [("finish", (1, None))]}))
        with pytest.raises(McptallyError, match="could not be sent"):
            list(pool.run(own={1: [("configure", (lambda: None,))]}))


def test_a_second_run_on_a_store_is_refused(tmp_path: Path):
    out = tmp_path / "store"
    with working(out), pytest.raises(StoreError, match="another run"):
        mt.score(FILES[:1], out=out)


def test_a_run_that_fails_leaves_the_store_as_it_was_or_no_folder(tmp_path: Path):
    out = tmp_path / "store"
    mt.score(FILES[:1], out=out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (tmp_path / "broken.jsonl").write_text("{\n")
    for store in (out, tmp_path / "first"):
        with pytest.raises(McptallyError):
            mt.score(tmp_path / "broken.jsonl", out=store)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "first").exists()


def test_after_a_run_that_is_stopped_the_same_command_makes_the_store(tmp_path: Path):
    out = tmp_path / "store"
    command = [sys.executable, "-m", "mcptally", "score", str(TRACES), "-o", str(out)]
    with subprocess.Popen([*command, "--jobs", "2"], stderr=subprocess.PIPE, text=True) as run:
        # The run has begun once its work folder exists.
        while not (out / ".work").exists():
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "no store was written" in said
    assert not out.exists()
    again = mt.score(TRACES, out=out)
    assert again.rows["calls"] > 0
