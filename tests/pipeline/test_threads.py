"""`mcptally.score` in a user's script, where polars has several threads (the command sets one).

With several threads the columns of a frame come in chunks of different lengths, some of them empty.
"""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.transcripts import call, exchange, opened, request, result, text, write


@pytest.mark.slow
def test_a_rule_that_only_later_calls_break_is_applied_with_several_threads(tmp_path: Path):
    handshake = {"protocolVersion": "2025-03-26", "capabilities": {}}
    about = {"clientInfo": {"name": "c", "version": "1"}} | handshake
    server = {"serverInfo": {"name": "s", "version": "1"}} | handshake
    messages = [request(0, "initialize", **about), result(0, **server)]
    messages.append({"jsonrpc": "2.0", "method": "notifications/initialized"})
    # A join makes a chunk of `revision` per 256 calls; calls with a finding are in the last only.
    for number in range(1, 601):
        new = {"structuredContent": {"a": 1}} if number > 560 else {}
        messages += [call(number), text(number, **new)]
    write(tmp_path / "a.jsonl", [opened(), *exchange(*messages)])
    script = f"import mcptally; mcptally.score({str(tmp_path)!r}, out={str(tmp_path / 'store')!r})"
    environment = os.environ | {"POLARS_MAX_THREADS": "4"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    findings = pl.read_parquet(tmp_path / "store" / "findings" / "*.parquet")
    too_new = findings.filter(pl.col("rule") == "protocol.too_new")
    assert too_new.height == 40
    assert set(too_new["message"]) == {
        "structuredContent was added in 2025-06-18; the session uses 2025-03-26"
    }
