"""The queue to the writer process, and recordings whose writer or recorder is stopped or killed."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcptally.transcript.check import check
from mcptally.transcript.writer.shared_queue import BLOCK_BYTES, HEADER_BYTES, SharedQueue
from tests.record.recorder_process import (
    TIMEOUT_SECONDS,
    PipedProcess,
    alive,
    events,
    eventually,
    of,
    script,
)

pytestmark = pytest.mark.slow

if sys.platform != "linux":
    pytest.skip("stops processes and finds them in /proc", allow_module_level=True)

PAGE = 4096


def anonymous_queue(size):
    memory = mmap.mmap(-1, HEADER_BYTES + size)

    def allocate(begin, end):  # as the journal does
        memory[begin:end] = bytes(end - begin)
        return True

    return SharedQueue(memory, 0, size, allocate=allocate)


@given(st.lists(st.one_of(st.integers(0, 2 * PAGE - 8).map(bytes), st.none()), max_size=60))
@example([bytes(2 * PAGE - 24), None, b"1", bytes(PAGE), None, None])
def test_the_queue_returns_each_record_once_in_order(steps):
    queue = anonymous_queue(4 * PAGE)
    waiting = []
    for step in steps:
        if step is None:
            assert queue.begin(queue.counters.begun) is None
            assert queue.begin(queue.counters.head) == (waiting[0] if waiting else None)
            if waiting:
                waiting.pop(0)
                queue.done(0)
        elif queue.put([step[:5], step[5:]]):
            waiting.append(step)
        else:
            assert waiting
    while waiting:
        assert queue.begin(queue.counters.head) == waiting.pop(0)
        queue.done(0)
    assert queue.begin(queue.counters.head) is None
    assert queue.put([bytes(queue.largest)])


def test_the_memory_of_records_that_were_taken_is_returned():
    before = shared_kb()
    queue = anonymous_queue(16 * BLOCK_BYTES)
    sent = []
    for number in range(300):
        record = b"%d" % number * (BLOCK_BYTES // 9)
        while not queue.put([record]):  # a backlog, then none, and so on
            while sent:
                assert queue.begin(queue.counters.head) == sent.pop(0)
                queue.done(0)
        sent.append(record)
    while sent:
        assert queue.begin(queue.counters.head) == sent.pop(0)
        queue.done(0)
    for _ in range(2):
        assert queue.put([b""])
        assert queue.begin(queue.counters.head) == b""
        queue.done(0)
    assert shared_kb() - before <= 3 * BLOCK_BYTES // 1024


def shared_kb():
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "RssShmem" in x]
    return int(line.split()[1])


PRELUDE = """
import os, signal, sys, time
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.process import WriterProcess
limits = Limits(compress=False, stall_seconds=0.2, frame_bytes=1 << 40)
archive = WriterProcess(sys.argv[1], policy='default', limits=limits, queue_bytes=16 << 20)
recording = archive.prepare(transport="stdio", server="s")
def frames(first, last, size=0):
    for number in range(first, last):
        recording.frames([b'{"id":%d,"x":"%b"}' % (number, b"y" * size)], dir="c2s")
    archive.wake()
def stop_writer():
    os.kill(archive._pid, signal.SIGSTOP)
    os.waitpid(archive._pid, os.WUNTRACED)
queue = archive.journal.queue
def executed(): return queue.counters.head == queue.counters.tail
def wait(condition):
    while not condition(): time.sleep(0.001)
def close():
    recording.close(reason="end")
    archive.close()
frames(0, 10)
"""


def run(folder, source, *, code=0, prelude=PRELUDE):
    """Run `source` after `prelude` in a process; return its stderr and the events, if it ends."""
    done = subprocess.run(
        [*script(prelude + source), str(folder)],
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stderr.decode()
    return done.stderr.decode(), events(folder, ended=code >= 0)


def assert_gaps_count_what_is_missing(found, sent):
    ids = [event["msg"]["id"] for event in of(found, "message")]
    assert ids == sorted(set(ids))
    lost = sum(gap["lost"] for gap in of(found, "gap"))
    assert len(ids) + lost == sent
    assert found[-1]["event"] == "close"
    assert found[-1]["counts"]["lost"] == lost
    for kind in ("open", "message", "gap"):
        assert found[-1]["counts"].get(kind, 0) == len(of(found, kind))
    seqs = [event["seq"] for event in found]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] + 1 - len(seqs) == lost
    return lost


def test_a_stopped_writer_delays_nothing_until_the_queue_is_full_and_then_a_gap_counts_the_loss(
    tmp_path,
):
    logged, found = run(
        tmp_path,
        "stop_writer()\n"
        "frames(10, 60, 1 << 20)\n"
        "assert recording.lost > 20\n"
        "os.kill(archive._pid, signal.SIGCONT)\n"
        "wait(executed)\n"
        "frames(60, 70)\n"
        "close()",
    )
    assert logged.count("traffic goes on without recording") == 1
    assert assert_gaps_count_what_is_missing(found, 70) > 20


@pytest.mark.parametrize("end", ["close()", "os.kill(os.getpid(), 9)"], ids=["closed", "killed"])
def test_a_gap_counts_the_loss_if_the_writer_was_stopped_until_the_recorder_ended(tmp_path, end):
    source = (
        "wait(executed)\nstop_writer()\nframes(10, 60, 1 << 20)\n"
        f"print(archive._pid, recording.lost, flush=True)\n{end}"
    )
    done = subprocess.run(
        [*script(PRELUDE + source), str(tmp_path)],
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    writer, lost = map(int, done.stdout.split())
    os.kill(writer, signal.SIGCONT)
    assert eventually(lambda: not alive(writer))
    found = events(tmp_path)
    assert len(of(found, "message")) == 60 - lost
    (gap,) = of(found, "gap")
    assert gap["lost"] == lost + (end == "close()")


def test_a_killed_writer_is_replaced_and_the_waiting_events_are_written(tmp_path):
    logged, found = run(
        tmp_path,
        "import resource\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1100, hard))\n"
        "copies = [os.dup(2) for _ in range(1050)]\n"  # more than select() can wait for
        "wait(executed)\n"
        "stop_writer()\n"
        "frames(10, 20)\n"
        "os.kill(archive._pid, signal.SIGKILL)\n"
        "archive._restart()\n"
        "frames(20, 30)\n"
        "wait(executed)\n"
        "stop_writer()\n"
        "frames(30, 60, 1 << 20)\n"
        "os.kill(archive._pid, signal.SIGCONT)\n"
        "wait(executed)\n"
        "close()",
    )
    assert "ended by signal 9; another one continues" in logged
    assert assert_gaps_count_what_is_missing(found, 60) > 0
    assert [event["msg"]["id"] for event in of(found, "message")][:30] == list(range(30))
    assert [event["segment"] for event in of(found, "open")] == [0, 1]


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_call_that_ends_the_writer_is_lost_unless_it_was_written(tmp_path, place):
    logged, found = run(
        tmp_path,
        "from mcptally.transcript.writer.segment import Segment\n"
        "put = Segment.put\n"
        "def fatal(self, lines):\n"
        "    if b'fatal' in lines and 'before' == sys.argv[2]: os.kill(os.getpid(), 9)\n"
        "    put(self, lines + b'torn' * (b'fatal' in lines))\n"
        "    if b'fatal' in lines: os.kill(os.getpid(), 9)\n"
        "Segment.put = fatal\n"
        f"sys.argv.append({place!r})\n"
        "wait(executed)\n"
        "os.kill(archive._pid, 9)\n"
        "archive._restart()\n"
        "recording.frames([b'{\"id\":10,\"fatal\":1}'], dir='c2s')\n"
        "frames(11, 20)\n"
        "wait(lambda: queue.begun_bytes)\n"
        "archive._restart()\n"
        "frames(20, 30)\n"
        "close()",
    )
    # The first death is that of a batch of calls, the next one that of the call alone.
    assert logged.count("ended by signal 9") == (3 if place == "before" else 2)
    assert assert_gaps_count_what_is_missing(found, 30) == (1 if place == "before" else 0)


def test_a_writer_that_always_ends_is_not_started_or_woken_for_ever(tmp_path):
    policy = "from mcptally.redaction import policy\npolicy.policy = lambda _: os._exit(3)\n"
    logged, _ = run(
        tmp_path,
        "import select\n"
        "while archive._pid:\n"
        "    select.select([archive._ended], [], []); archive._restart()\n"
        "pipes = [os.pipe() for _ in range(9)]\n"
        "frames(10, 20)\n"
        "close()\n"
        "assert not select.select([read for read, _ in pipes], [], [], 0)[0], 'written to'",
        prelude=PRELUDE.replace("archive =", f"{policy}archive ="),
    )
    assert "ended with exit code 3; another one continues" in logged
    assert "nothing is recorded" in logged
    assert "events wait in " in logged


def test_events_are_written_after_messages_to_the_writer_found_the_pipe_full(tmp_path):
    _, found = run(
        tmp_path,
        "wait(executed)\n"
        "stop_writer()\n"
        "for _ in range(10_000): archive.wake()\n"
        "frames(10, 20)\n"
        "os.kill(archive._pid, signal.SIGCONT)\n"
        "wait(executed)\n"
        "close()",
    )
    assert assert_gaps_count_what_is_missing(found, 20) == 0


def test_events_are_written_once_if_the_writer_dies_between_the_file_and_the_queue(tmp_path):
    _, found = run(
        tmp_path,
        "from mcptally.transcript.writer.shared_queue import SharedQueue\n"
        "done = SharedQueue.done\n"
        "def fatal(self, events):\n"
        "    if events == 7: os.kill(os.getpid(), 9)\n"
        "    done(self, events)\n"
        "SharedQueue.done = fatal\n"
        "wait(executed)\n"
        "os.kill(archive._pid, 9)\n"
        "archive._restart()\n"
        "frames(10, 17)\n"
        "wait(lambda: queue.begun_bytes)\n"
        "archive._restart()\n"
        "frames(17, 20)\n"
        "close()",
    )
    assert assert_gaps_count_what_is_missing(found, 20) == 0


def test_a_call_with_more_events_than_fit_into_the_queue_is_handed_over_in_several(tmp_path):
    _, found = run(
        tmp_path,
        "archive.limits = limits._replace(stall_seconds=None)\n"
        'pieces = [b\'{"id":%d,"x":"%b"}\' % (n, b\'y\' * (3 << 20)) for n in range(10, 17)]\n'
        "recording.frames(pieces, dir='c2s')\n"
        "frames(17, 18)\n"
        "close()",
    )
    assert assert_gaps_count_what_is_missing(found, 18) == 0


def test_the_queue_has_room_for_frames_of_the_largest_size(tmp_path):
    printed, found = run(
        tmp_path,
        "print(archive.limits.frame_bytes, file=sys.stderr)\nframes(10, 11, 40 << 20)\nclose()",
        prelude=PRELUDE.replace(
            "stall_seconds=0.2, frame_bytes=1 << 40", "frame_bytes=41 << 20"
        ).replace(", queue_bytes=16 << 20", ""),
    )
    assert printed == f"{41 << 20}\n"
    assert assert_gaps_count_what_is_missing(found, 11) == 0


@pytest.mark.parametrize(
    ("cause", "logged"),
    [
        (
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (64 << 20, 64 << 20))",
            "cannot start a writer process: Cannot allocate memory; the recorder writes the events",
        ),
        (
            "def fork(): raise BlockingIOError(11, 'Try again')\nos.fork = fork",
            "cannot start a writer process: Try again; the recorder writes the events itself",
        ),
        (
            "import threading\ndef f(_): raise RuntimeError('none')\nthreading.Thread.start = f",
            "finished files are neither compressed nor removed: none",
        ),
    ],
)
def test_without_memory_or_processes_or_threads_for_it_events_are_recorded(tmp_path, cause, logged):
    printed, found = run(
        tmp_path,
        "close()",
        prelude=f"from mcptally.transcript.writer.opening import open_archive\nimport os\n{cause}\n"
        + PRELUDE.replace("WriterProcess(", "open_archive(")
        .replace(", queue_bytes=16 << 20", "")
        .replace("queue = archive", "#"),
    )
    # On a busy machine, closing takes so long that the recorder says so, too.
    said = [line for line in printed.splitlines() if "is still being written" not in line]
    assert logged in printed
    assert sum(line.startswith("mcptally: ") for line in said) == 1
    assert assert_gaps_count_what_is_missing(found, 10) == 0


def test_events_that_no_writer_can_write_wait_in_the_journal(tmp_path):
    logged, _ = run(
        tmp_path,
        "wait(executed)\n"
        "stop_writer()\n"
        "frames(10, 30)\n"
        "os.kill(archive._pid, 9)\n"
        "archive._failures = 3\n"
        "assert not archive._restart()\n"
        "frames(30, 35)\n"
        "close()",
    )
    (journal,) = tmp_path.glob("*.journal")
    assert f"20 events wait in {journal}; `mcptally check {tmp_path}` writes" in logged
    check(tmp_path)
    assert not journal.exists()
    ids = [event["msg"]["id"] for event in of(events(tmp_path), "message")]
    assert ids == list(range(30))


def test_the_stderr_of_the_recorder_ends_with_it_while_the_writer_still_writes(tmp_path):
    source = "wait(executed)\nstop_writer()\nprint(archive._pid, flush=True)\nclose()"
    with PipedProcess([*script(PRELUDE + source), str(tmp_path)]) as recorder:
        writer = int(recorder.line())
        try:
            logged = recorder.read_to_end(stream="stderr")
        finally:
            os.kill(writer, signal.SIGCONT)
    assert b"is still being written" in logged
    assert eventually(lambda: not alive(writer))
    assert events(tmp_path)[-1]["event"] == "close"
