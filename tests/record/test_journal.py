"""Events that wait in the journal survive a kill of all processes, and nothing unredacted stays."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcptally.errors import UnreadableError
from mcptally.transcript.check import check
from mcptally.transcript.discover import discover
from mcptally.transcript.writer import journal
from mcptally.transcript.writer.progress import SLOT_BYTES, SLOTS, Opening, Progress
from tests.commands import run
from tests.record.recorder_process import (
    ECHO,
    PYTHON,
    PipedProcess,
    RecordedServer,
    events,
    eventually,
    of,
    recorder,
)
from tests.record.test_writer_process import PRELUDE
from tests.record.test_writer_process import run as run_script

pytestmark = pytest.mark.slow

if sys.platform != "linux":
    pytest.skip("kills processes by their namespace", allow_module_level=True)

SECRET = "ghp_" + "a1B2c3D4e5F6" * 3
NAMESPACE = ["unshare", "-p", "-f", "--kill-child", "--mount-proc"]


def ids(folder, **fields):
    return [event["msg"]["id"] for event in of(events(folder), "message", **fields)]


def kill_both(folder, source="", *, prelude=PRELUDE):
    """Kill recorder and writer while events 10 to 19 wait in the journal."""
    run_script(
        folder,
        f"wait(executed)\nstop_writer()\n{source}\n"
        f'recording.frames([b\'{{"id":10,"x":"{SECRET}"}}\'], dir=\'c2s\')\n'
        "frames(11, 20)\n"
        "os.kill(archive._pid, 9)\nos.waitpid(archive._pid, 0)\nos.kill(os.getpid(), 9)",
        code=-signal.SIGKILL,
        prelude=prelude,
    )
    (left,) = folder.glob("*.journal")
    return left


def assert_finished(folder):
    assert not list(folder.rglob("*.journal"))
    for path in folder.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_events_that_wait_when_all_processes_are_killed_are_written_by_check(tmp_path):
    left = kill_both(tmp_path)
    assert left.stat().st_mode & 0o777 == 0o600
    assert SECRET.encode() in left.read_bytes()
    assert ids(tmp_path) == list(range(10))
    (report,) = check(tmp_path).recordings
    assert report.verdict == "unclosed"
    assert ids(tmp_path) == list(range(20))
    assert_finished(tmp_path)
    opened = of(events(tmp_path), "open")
    assert [event["segment"] for event in opened] == [0, 1]
    assert len({json.dumps(event["recorder"]) + event["server"] for event in opened}) == 1


def test_the_next_recorder_in_the_folder_writes_the_events_that_wait(tmp_path):
    kill_both(tmp_path)
    with RecordedServer(tmp_path, ["true"], "--no-compress") as recorded_server:
        _, logged, code = recorded_server.end()
    assert code == 0
    assert f"{tmp_path}: wrote 10 events of a recorder that was killed" in logged.decode()
    assert_finished(tmp_path)
    assert ids(tmp_path, dir="c2s") == list(range(20))


@pytest.mark.parametrize("command", ["check", "score", "overview", "redact"])
def test_every_command_that_reads_the_folder_writes_the_events_that_wait(
    command, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    traces = tmp_path / "traces"
    kill_both(traces)
    (segment,) = traces.glob("*.jsonl")
    arguments = {
        "check": (["check", traces], 1),
        "score": (["score", segment, "-o", tmp_path / "store"], 0),
        "overview": ([traces], 0),
        "redact": (["redact", traces, "-o", tmp_path / "copy"], 0),
    }
    given, code = arguments[command]
    assert run(*given).returncode == code
    assert_finished(traces)
    assert ids(traces) == list(range(20))


def test_a_recording_whose_file_was_not_yet_created_is_written_from_the_journal(tmp_path):
    prelude = PRELUDE.replace(
        "frames(0, 10)", "stop_writer()\ndef stop_writer(): pass\nframes(0, 10)"
    )
    kill_both(
        tmp_path, prelude=prelude.replace("def executed(): return", "def executed(): return 1 or")
    )
    assert not list(tmp_path.glob("*.jsonl"))
    assert [Path(name).suffix for name in discover([tmp_path])] == [".jsonl"]
    assert ids(tmp_path) == list(range(20))
    assert_finished(tmp_path)


def test_the_policy_of_the_recorder_redacts_the_events_that_wait(tmp_path):
    prelude = PRELUDE.replace("'default'", "'default,+emails'")
    kill_both(
        tmp_path,
        'recording.frames([b\'{"id":1,"to":"ann@example.org"}\'], dir=\'s2c\')',
        prelude=prelude,
    )
    check(tmp_path)
    (answer,) = of(events(tmp_path), "message", dir="s2c")
    assert answer["msg"] == {"id": 1, "to": "[redacted:emails]"}


def test_the_journal_of_a_running_recorder_is_left_alone(tmp_path):
    with RecordedServer(tmp_path, ECHO) as recorded_server:
        recorded_server.send(b'{"id":1}\n')
        assert recorded_server.line() == b'{"id":1}'
        # The file and the journal exist before the first byte passes.
        assert len(list(tmp_path.glob("*.jsonl"))) == 1
        (own,) = tmp_path.glob("*.journal")
        assert check(tmp_path).recordings[0].verdict == "writing"
        assert own.exists()
        assert recorded_server.end()[2] == 0
    assert_finished(tmp_path)
    assert ids(tmp_path) == [1, 1]


@pytest.mark.parametrize("batch", [1, 5])
def test_a_kill_of_everything_during_a_batch_loses_none_of_its_events(batch, tmp_path):
    # The writer is killed before, or after, it writes the lines of a batch.
    for place in ("before", "after"):
        folder = tmp_path / place
        folder.mkdir()
        run_script(
            folder,
            "from mcptally.transcript.writer.segment import Segment\n"
            "wait(executed)\n"
            "put = Segment.put\n"
            "def fatal(self, lines):\n"
            f"    if {place == 'after'}: put(self, lines + b'torn')\n"
            "    os.kill(os.getppid(), 9)\n"
            "    os.kill(os.getpid(), 9)\n"
            "Segment.put = fatal\n"
            "os.kill(archive._pid, 9)\n"
            "archive._restart()\n"
            f"numbers = range(10, 10 + {batch})\n"
            "recording.frames([b'{\"id\":%d}' % n for n in numbers], dir='c2s')\n"
            "archive.wake()\n"
            "time.sleep(1000)",
            code=-signal.SIGKILL,
        )
        check_when_unlocked(folder)
        assert ids(folder) == list(range(10 + batch))
        assert not of(events(folder), "gap")


def check_when_unlocked(folder):
    """Check after the last process that holds the journal has ended."""

    def finished():
        with contextlib.suppress(UnreadableError):  # there is no file yet
            check(folder)
        return not list(folder.glob("*.journal"))

    assert eventually(finished)


def test_a_journal_that_another_program_has_written_is_reported_and_changes_no_other_file(tmp_path):
    outside = tmp_path / "outside"
    lines = '{"event":"message","seq":1}\n' * 1000 + "not a line"
    outside.write_text(lines)
    (tmp_path / "t").mkdir()
    left = kill_both(tmp_path / "t")
    size, slots = left.stat().st_size, left.stat().st_size - SLOTS * SLOT_BYTES
    with left.open("rb") as file:
        pages = {at: os.pread(file.fileno(), 4096, at) for at in (0, 1 << 16, 1 << 17, slots)}
    (segment,) = (tmp_path / "t").glob("*.jsonl")
    used = [(at, n) for at, page in pages.items() for n, byte in enumerate(page) if byte]
    rng = random.Random(4)
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (folder / "x.journal").open("wb") as file:
            file.truncate(size)
            for at, page in pages.items():
                os.pwrite(file.fileno(), page, at)
            for at, n in rng.sample(used, rng.randrange(4)):
                os.pwrite(file.fileno(), rng.randbytes(1), at + n)
        (folder / segment.name).symlink_to(outside)
        with contextlib.suppress(UnreadableError):
            check(folder)
        assert outside.read_text() == lines
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "x.journal").write_bytes(b"a diary")
    with pytest.raises(UnreadableError, match=r"x\.journal: .* not a journal of this version"):
        check(tmp_path / "u")


def test_a_journal_cannot_name_a_file_outside_its_folder(tmp_path):
    outside = tmp_path / "outside-0000.jsonl"
    outside.write_text("torn")
    (tmp_path / "t").mkdir()
    written = journal.create(str(tmp_path / "t"), policy="default", size=1 << 20)
    assert written.allocate_slot(0)
    written.queue.slots = 1
    fields = {"transport": "stdio"}
    written.progress.open(0, 1, Opening("id", "../outside", 0, fields))
    written.progress.save(0, 1, 0, Progress(segments=1))
    written.close()
    with pytest.raises(UnreadableError, match=r"journal: .*outside. is not the beginning"):
        check(tmp_path / "t")
    assert outside.read_text() == "torn"


def test_the_journal_of_a_recorder_that_was_killed_at_its_start_is_removed(tmp_path):
    (tmp_path / "x.journal").write_bytes(bytes(1000))
    with pytest.raises(UnreadableError, match="no transcripts found"):
        check(tmp_path)
    assert not list(tmp_path.iterdir())


# --- all processes of a container ----------------------------------------------------------------


@pytest.fixture(scope="module")
def namespace():
    try:
        done = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs the program unshare (util-linux)")
    if done.returncode:
        pytest.skip(f"needs the right to use namespaces: {done.stderr.decode().strip()}")
    return NAMESPACE


@pytest.mark.parametrize("calls", [1, 200])
def test_every_exchange_over_stdio_survives_a_kill_of_the_container(calls, tmp_path, namespace):
    with PipedProcess([*namespace, *recorder(tmp_path, "--no-compress"), *ECHO]) as container:
        for number in range(calls):
            container.send(b'{"id":%d}\n' % number)
            assert container.line() == b'{"id":%d}' % number
        container.process.kill()
    check_when_unlocked(tmp_path)
    for way in ("c2s", "s2c"):
        assert ids(tmp_path, dir=way) == list(range(calls))


@pytest.mark.usefixtures("namespace")
def test_a_folder_that_cannot_be_written_is_read_without_the_events_that_wait(tmp_path):
    kill_both(tmp_path)
    read_only = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path}"
    commands = ["unshare", "-m", "sh", "-c", f'{read_only} && exec "$@"', "sh"]
    done = subprocess.run(
        [*commands, *PYTHON, "-m", "mcptally", "score", tmp_path, "-o", f"{tmp_path}-store"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stderr.startswith(("mount:", "unshare:")):
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    assert done.returncode == 0
    assert "10 messages" in done.stderr
    assert re.search(
        r"\.journal: events of a recorder that was killed are not read: Read-only file system; "
        r"copy the folder to where it can be written\n",
        done.stderr,
    )
    assert len(list(tmp_path.glob("*.journal"))) == 1
