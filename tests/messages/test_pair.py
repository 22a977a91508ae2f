from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mcptally.messages.pair import match_ids
from mcptally.pipeline.partition import gather
from tests.transcripts import call, error, exchange, opened, result, write


def slow_match(keys: list[int], replies: list[bool]) -> set[tuple[int, int]]:
    """Match with a stack per key: unclosed requests get no reply, others are paired in order."""
    pairs = set()
    for key in set(keys):
        rows = [(i, r) for i, (k, r) in enumerate(zip(keys, replies, strict=True)) if k == key]
        stack: list[int] = []
        asked, answered = [], []
        for i, is_reply in rows:
            if not is_reply:
                stack.append(i)
            elif stack:
                asked.append(stack.pop())
                answered.append(i)
        pairs |= set(zip(sorted(asked), answered, strict=True))
    return pairs


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_match_ids_agrees_with_a_slow_implementation(rows):
    keys, replies = [k for k, _ in rows], [r for _, r in rows]
    asks, answers = match_ids(np.array(keys, np.uint64), np.array(replies, np.bool_))
    assert set(zip(asks.tolist(), answers.tolist(), strict=True)) == slow_match(keys, replies)


def test_the_text_of_an_error_is_that_of_its_content_or_else_its_structured_content(
    tmp_path: Path,
):
    content = [{"type": "text", "text": "gone"}]
    results = [{"content": content}, {"content": content, "structuredContent": {"a": 1}}]
    results += [{"content": [], "structuredContent": {"a": 1}}, {"content": []}]
    talk = []
    for number, members in enumerate(results):
        talk += [call(number), result(number, **members, isError=True)]
    path = write(tmp_path / "x.jsonl", [opened(), *exchange(*talk)])
    calls = gather([path], ["x.jsonl"]).calls
    assert calls.sort("seq")["error_text"].to_list() == ["gone", "gone", '{"a": 1}', None]


def test_a_reply_that_asks_the_user_to_sign_in_is_a_step_and_no_error(tmp_path: Path):
    talk = [call(1), error(1, -32042, "Sign in"), call(2), error(2, -32602, "Sign in")]
    path = write(tmp_path / "x.jsonl", [opened(), *exchange(*talk)])
    calls = gather([path], ["x.jsonl"]).calls
    assert calls.sort("seq")["outcome"].to_list() == ["input_required", "protocol_error"]
