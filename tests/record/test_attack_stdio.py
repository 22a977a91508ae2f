"""The stdio recorder with odd clocks, hostile names, few descriptors and endless output."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.transcript.writer.clock import Clock
from mcptally.transcript.writer.segment import SEGMENT_NAME, segment_stem
from tests.record.recorder_process import (
    TIMEOUT_SECONDS,
    RecordedServer,
    eventually,
    recorder,
    script,
    segments,
)
from tests.record.test_stdio_transparent import peak_kb

pytestmark = pytest.mark.slow

if sys.platform != "linux":
    pytest.skip("sets limits by sh and reads memory from /proc", allow_module_level=True)


YEAR = 365 * 86_400 * 10**9


@given(st.lists(st.tuples(st.integers(-2 * YEAR, 2 * YEAR), st.integers(0, 10**12)), max_size=20))
def test_times_never_go_back_when_the_wall_clock_is_changed(steps):
    wall, steady = [50 * YEAR], [0]
    clock = Clock(wall=lambda: wall[0], steady=lambda: steady[0])
    before = clock.now()
    assert before == clock.began_ns == 50 * YEAR
    for step, passed in steps:
        wall[0] += step + passed
        steady[0] += passed
        assert clock.now() == before + passed
        before = clock.now()


@pytest.mark.parametrize("wall", [0, 1, 50 * YEAR, 2**63 - 1])
def test_a_wrong_wall_clock_still_gives_a_valid_file_name(wall):
    name = segment_stem("s", "0" * 12, wall)
    assert "/" not in name
    assert len(name) < 100
    assert SEGMENT_NAME.fullmatch(f"{name}-0000.jsonl")


@pytest.mark.parametrize("limit", [8, 10, 13, 16, 20])
def test_without_free_descriptors_it_works_or_prints_a_clear_error(tmp_path, limit):
    command = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *recorder(tmp_path), "cat"]
    done = subprocess.run(
        command, input=b'{"id":1}\n', capture_output=True, timeout=TIMEOUT_SECONDS, check=False
    )
    said = done.stderr.decode()
    assert "Traceback" not in said
    if done.returncode:
        assert "Too many open files" in said
    else:
        assert done.stdout == b'{"id":1}\n'


def test_endless_output_is_not_read_on_when_the_client_does_not_read(tmp_path):
    line = '{"x":"' + "y" * 1_000 + '"}'
    endless = script(f"import sys\nwhile True: sys.stdout.write({line!r} + chr(10))")
    with RecordedServer(tmp_path, endless, "--redact", "none") as recorded_server:
        assert recorded_server.line() == line.encode()
        size = sum(len(data) for _, data in segments(tmp_path))
        # When the pipes are full, the recording stops growing.
        sizes = [size]

        def stopped():
            sizes.append(sum(len(data) for _, data in segments(tmp_path)))
            return len(sizes) > 20 and sizes[-1] == sizes[-20]

        assert eventually(stopped)
        assert sizes[-1] < 3_000_000
        assert peak_kb(recorded_server.process.pid) < 100 * 1024
        recorded_server.process.kill()
