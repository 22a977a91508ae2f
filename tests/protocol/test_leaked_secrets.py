"""Credentials in results are found. The examples in rules/leaks.toml show what is not reported."""

import polars as pl
import pytest

from mcptally.protocol import leaked_secrets

MIXED = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0z"


@pytest.mark.parametrize(
    "token",
    [
        f"ghp_{MIXED}12345",
        f"hf_{MIXED}",
        f"sk-{MIXED}",
        f"sk-proj-{MIXED}",
        f"r8_{MIXED}",
        f"SG.{MIXED}.{MIXED}",
        "sk_" + "0123456789abcdef" * 2,
        "AKIA" + "2B4D6F8H0J2L4N6P",
        f"eyJ0eXAiOiJKV1QifQ.{MIXED}.{MIXED}",
    ],
)
def test_a_token_in_a_result_is_found_by_its_prefix(token):
    answer = f'{{"content":[{{"type":"text","text":"it is {token}!"}}]}}'
    call = {"dir": "c2s", "method": "tools/call", "arguments": "{}", "response": answer, "line": 1}
    names = dict.fromkeys(("call_id", "recording", "session", "server", "tool", "file"), "x")
    calls = pl.DataFrame([call | names])
    (message,) = leaked_secrets.find_leaked_secrets(calls).get_column("message")
    assert message.endswith(f", {len(token)} characters")
    assert token[8:] not in message
