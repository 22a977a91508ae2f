"""All the protocol's rules over one partition's traffic."""

from collections.abc import Sequence

import polars as pl

from mcptally.messages.decode import Events
from mcptally.protocol import http, jsonrpc, lifecycle, message_schemas, progress
from mcptally.protocol.view import Traffic
from mcptally.rules.findings import together


def find(
    events: Events, messages: pl.DataFrame, calls: pl.DataFrame, names: Sequence[str]
) -> pl.DataFrame:
    """Every finding about the protocol; `messages` and `calls` call their files by `names`."""
    traffic = Traffic.of(events, messages, calls, names)
    parts = (jsonrpc.find, message_schemas.find, lifecycle.find, progress.find, http.find)
    return together([found for part in parts for found in part(traffic)])
