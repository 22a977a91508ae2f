"""All the protocol's rules over one partition's traffic."""

from collections.abc import Sequence

import polars as pl

from mcptally.decode import Events
from mcptally.judge import together
from mcptally.protocol import http, jsonrpc, lifecycle, progress, shapes
from mcptally.protocol.traffic import Traffic


def find(
    events: Events, messages: pl.DataFrame, calls: pl.DataFrame, names: Sequence[str]
) -> pl.DataFrame:
    """Every finding about the protocol; `messages` and `calls` call their files by `names`."""
    traffic = Traffic.of(events, messages, calls, names)
    parts = (jsonrpc.find, shapes.find, lifecycle.find, progress.find, http.find)
    return together([found for part in parts for found in part(traffic)])
