"""Sorts any number of items by time, in a temporary SQLite database on disk.

Spans, calls and HTTP entries are logged when they end, but transcripts contain requests and replies
in the order in which they were sent.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from mcptally.importers.items import Item

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Item).decode


def sorted_by_time(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items in chronological order; an item without a time follows its predecessor."""
    with contextlib.closing(sqlite3.connect("")) as spool:  # "": a temporary file
        spool.execute("CREATE TABLE items (number INTEGER PRIMARY KEY, at INTEGER, item BLOB)")
        spool.executemany("INSERT INTO items (at, item) VALUES (?, ?)", _rows(items))
        for (item,) in spool.execute("SELECT item FROM items ORDER BY at, number"):
            yield _DECODE(item)


def _rows(items: Iterable[Item]) -> Iterator[tuple[int, bytes]]:
    last = 0
    for item in items:
        last = last if item.at is None else item.at
        yield last, _ENCODE(item)
