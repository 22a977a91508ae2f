"""The limit of JSON nesting is the same for every command, function and stack depth."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import mcptally as mt
from mcptally.analytics.store import open_store
from mcptally.errors import UsageError
from mcptally.messages.line_depth import may_be_too_deep
from mcptally.tables.all_tables import TABLES
from mcptally.transcript.check import check
from mcptally.wire.nesting import MAX_DEPTH, is_too_deep, is_value_too_deep, raised_recursion_limit
from mcptally.wire.strict_json import strict_json_error
from tests.commands import run
from tests.transcripts import c2s, call, opened, write

T = TypeVar("T")

DEPTHS = (*range(10, 1010, 10), MAX_DEPTH - 1, MAX_DEPTH + 1)
"""Depths of messages; those up to `MAX_DEPTH` are accepted."""
ACCEPTED = sum(depth <= MAX_DEPTH for depth in DEPTHS)
FRAMES = 500
READINGS = ("document", "inspector")


def archive(folder: Path) -> Path:
    """Calls whose replies are nested to each depth, once as values and once inside a text."""
    events: list[Any] = [opened()]
    for number, depth in enumerate(DEPTHS):
        events.append(c2s(2 * number + 1, call(number)))
        value = b"[" * (depth - 2) + b"]" * (depth - 2)
        text = json.dumps((b"[" * depth + b"]" * depth).decode()).encode()
        events.append(
            b'{"v":1,"event":"message","recording":"r1","seq":%d,"ts_ns":%d,"dir":"s2c","msg":'
            b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":%b,'
            b'"content":[{"type":"text","text":%b}]}}}\n'
            % (2 * number + 2, 1_700_000_000_000_000_000 + number, number, value, text)
        )
    folder.mkdir()
    write(folder / "deep.jsonl", events)
    return folder


def tables(store: Path) -> dict[str, pl.DataFrame]:
    return {
        table.name: pl.read_parquet(
            store / table.name / "*.parquet", missing_columns="insert"
        ).sort(table.key, nulls_last=True)
        for table in TABLES
    }


def deeper(call_: Callable[[], T], frames: int = FRAMES) -> T:
    """The result of `call_`, called from `frames` stack frames deeper."""
    return call_() if not frames else deeper(call_, frames - 1)


def in_thread(call_: Callable[[], T]) -> T:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(deeper(call_, 300)))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(scope="module")
def by_command(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An archive, and the store that the command writes."""
    folder = tmp_path_factory.mktemp("nesting")
    traces, store = archive(folder / "traces"), folder / "store"
    subprocess.run(
        [sys.executable, "-I", "-m", "mcptally", "score", str(traces), "--out", str(store)],
        check=True, capture_output=True,
    )  # fmt: skip
    return traces, store


@pytest.mark.slow
@pytest.mark.parametrize("way", [deeper, in_thread])
def test_the_library_accepts_what_the_command_accepts(
    tmp_path: Path, by_command: tuple[Path, Path], way: Callable[[Callable[[], Any]], Any]
) -> None:
    traces, store = by_command
    limit = sys.getrecursionlimit()
    way(lambda: mt.score([traces], out=tmp_path / "store"))
    theirs = tables(store)
    for name, frame in tables(tmp_path / "store").items():
        assert_frame_equal(frame, theirs[name])
    assert sys.getrecursionlimit() == limit
    refused = theirs["findings"].filter(rule="transcript.too_deep")
    assert refused.height == len(DEPTHS) - ACCEPTED
    assert set(refused["message"]) == {"JSON nested deeper than 512 levels"}
    assert theirs["calls"].filter(outcome="ok").height == ACCEPTED


@pytest.mark.slow
@pytest.mark.parametrize("way", [lambda call_: call_(), deeper, in_thread])
def test_check_accepts_what_score_accepts(
    by_command: tuple[Path, Path], way: Callable[[Callable[[], Any]], Any]
) -> None:
    answer = way(lambda: check([by_command[0]]))
    assert answer.events == 1 + len(DEPTHS) + ACCEPTED
    (file,) = answer.damaged_files
    assert f"and {len(DEPTHS) - ACCEPTED - 1} more: JSON nested deeper than 512" in str(
        file.problems
    )


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 100_000])
def test_the_recorder_has_the_same_limit(depth: int) -> None:
    frame = b"[" * depth + b"]" * depth
    found = strict_json_error(frame), deeper(lambda: strict_json_error(frame), 300)
    assert found == ((None, None) if depth <= MAX_DEPTH else ("too_deep", "too_deep"))


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.slow
@pytest.mark.parametrize("rules", READINGS)
@pytest.mark.parametrize(
    "judge",
    [mt.validate_response, mt.is_business_error, mt.business_decision, mt.response_metadata],
)
def test_one_response_is_classified_up_to_the_limit_and_refused_beyond(
    judge: Any, rules: str
) -> None:
    tool = {"name": "t", "outputSchema": {"type": "object", "properties": {"a": {"type": "null"}}}}

    def judged(depth: int) -> Any:
        response = {"content": [], "structuredContent": {"a": nested(depth - 2)}}
        return judge({"tool": tool, "response": response}, rules=rules)

    assert deeper(lambda: judged(MAX_DEPTH)) == judged(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 600, 100_000):
        with pytest.raises(
            UsageError, match="`response` of the context is nested deeper than the limit of 512"
        ):
            judged(depth)


@pytest.mark.parametrize("as_text", [False, True])
def test_assert_tool_response_accepts_up_to_the_limit_and_refuses_beyond(as_text: bool) -> None:
    def asserted(depth: int) -> None:
        inner = "[" * (depth - 1) + "]" * (depth - 1)
        text = '{"content":[{"type":"text","text":"a"}],"structuredContent":' + inner + "}"
        result: Any = text
        if not as_text:
            result = json.loads(text.replace(inner, "null")) | {
                "structuredContent": nested(depth - 1)
            }
        mt.assert_tool_response(result)

    with pytest.raises(
        AssertionError, match="not a tool response"
    ):  # it is read, and is not a response
        deeper(lambda: asserted(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(ValueError, match="nested deeper than the limit of 512"):
            asserted(depth)


@pytest.mark.slow
def test_a_dry_run_answers_up_to_the_limit_and_refuses_beyond(
    by_command: tuple[Path, Path],
) -> None:
    from mcptally.analytics import dry_run

    store = open_store(by_command[1])
    words = "Arguments: nested deeper than 512 levels"
    for depth, expected in ((MAX_DEPTH, False), (MAX_DEPTH + 1, True), (100_000, True)):
        for way in (lambda call_: call_(), deeper):
            answer = way(
                lambda depth=depth: dry_run.validate(
                    store, server="demo", tool="echo", arguments={"a": nested(depth - 1)}
                )
            )
            assert (words in answer.errors) == expected
    deep = f'{{"a": {"[" * 600 + "]" * 600}}}'
    words = ("--server", "demo", "--tool", "echo", "--arguments", deep)
    done = run("validate", by_command[1], *words)
    assert (done.returncode, done.stderr) == (
        2, "mcptally: --arguments: nested deeper than 512 levels\n",
    )  # fmt: skip


JSON = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\aä', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


def counted(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(counted, inner), default=0)


@given(JSON, st.booleans())
def test_depth_of_text_and_value_agree(value: Any, ascii_only: bool) -> None:
    depth = counted(value)
    text = json.dumps(value, ensure_ascii=ascii_only)
    for limit in (depth - 1, depth, depth + 1):
        expected = depth > limit
        assert is_too_deep(text, limit) == expected
        assert is_too_deep(text.encode("utf-8", "surrogatepass"), limit) == expected
        assert is_value_too_deep(value, limit) == expected
        codes = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        assert may_be_too_deep(codes, limit) or not expected


def test_escaped_json_in_a_string_is_ruled_out_without_the_exact_check() -> None:
    line = json.dumps([json.dumps([{"a": "b"}] * 9)]).encode()
    assert line.count(b"{") > 5
    assert not may_be_too_deep(np.frombuffer(line, np.uint8), 5)


def test_a_cyclic_value_is_too_deep() -> None:
    value: list[Any] = []
    value.append(value)
    assert is_value_too_deep(value)


def test_the_recursion_limit_is_restored_when_the_last_thread_is_done() -> None:
    before = sys.getrecursionlimit()
    with raised_recursion_limit():
        raised = sys.getrecursionlimit()

        def has_room() -> bool:
            with raised_recursion_limit():
                return sys.getrecursionlimit() >= raised

        assert in_thread(has_room)
        assert sys.getrecursionlimit() >= raised > before
    assert sys.getrecursionlimit() == before
