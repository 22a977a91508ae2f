"""Runs all protocol checks on one partition's traffic."""

from collections.abc import Sequence

import polars as pl

from mcptally.messages.decode import Events
from mcptally.process_memory import release_memory
from mcptally.protocol import http, jsonrpc, lifecycle, message_schemas, progress
from mcptally.protocol.traffic import Traffic
from mcptally.rules.findings import concat_findings


def check_protocol(
    events: Events, messages: pl.DataFrame, calls: pl.DataFrame, names: Sequence[str]
) -> pl.DataFrame:
    """Run all protocol checks, and return their findings.

    Args:
        events: the decoded events of the partition.
        messages: the partition's messages, with the file's name in `file`.
        calls: the partition's calls, with the file's name in `file`.
        names: the names of the files, to which `events` refers by index.
    """
    traffic = Traffic.of(events, messages, calls, names)
    checks = (
        jsonrpc.check_messages,
        message_schemas.check_payloads,
        lifecycle.check_sessions,
        progress.check_progress,
        http.check_http,
    )
    found: list[pl.DataFrame] = []
    for check in checks:
        found += check(traffic)
        release_memory()
    return concat_findings(found)
