"""Frames below a function with a large frame share one block of memory."""

import sys

import pytest

from mcptally.frame_memory import with_large_frame

CALLS = 300


def leaf() -> int:
    """Have a frame that is larger than that of `call_often`."""
    return max(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)


def call_often(depth: int) -> int:
    """Return the page faults of `CALLS` calls that are `depth` frames deeper than the caller."""
    if depth:
        return call_often(depth - 1)
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        leaf()
    faults: int = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return faults


@with_large_frame
def most_faults() -> int:
    return max(call_often(depth) for depth in range(250))


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="CPython's memory for frames")
def test_no_depth_makes_a_loop_of_calls_map_memory_in_each_round() -> None:
    assert most_faults() < CALLS
