"""Members that stand twice in a JSON-RPC message: parsers differ about which of them counts.

A decoded message no longer tells: the last one won. But then its members are shorter than the frame
was on the wire. Frames that have just the length of their members need no second look, and nearly
all have (17,574 of 17,575 recorded); the lines of the others are read again.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.transcript.events import MEMBERS

_PLACE: Final = len('"":,')
"""What a member takes beside its name and value."""


def odd_sizes(
    sizes: pl.Series, methods: pl.Series, members: Mapping[str, npt.NDArray[np.int64]]
) -> npt.NDArray[np.bool_]:
    """Which messages are longer on the wire than their members, with no or with usual spaces.

    `members` are how many bytes each member's value has.
    """
    count = len(methods)
    quoted = (methods.str.len_bytes().cast(pl.Int64) + len('""')).fill_null(0)
    lengths = [*members.items(), ("method", quoted.to_numpy())]
    total = np.ones(count, np.int64)
    there = np.zeros(count, np.int64)
    for name, length in lengths:
        has = length > 0
        total += length + has * (len(name) + _PLACE)
        there += has
    size = sizes.fill_null(0).to_numpy()
    odd: npt.NDArray[np.bool_] = (size > total) & (size != total + 2 * there - 1)
    return odd


def repeated(line: bytes) -> list[str]:
    """Names of members that stand twice in the message, or a message of the batch, of a line."""
    try:
        msg = MEMBERS.decode(line)["msg"]
        known = MEMBERS.decode(msg)
        total = 1 + sum(len(k.encode()) + len(bytes(v)) + _PLACE for k, v in known.items())
        if len(bytes(msg)) in {total, total + 2 * len(known) - 1}:
            return []
    except (msgspec.DecodeError, RecursionError, KeyError):
        pass
    try:
        pairs = json.loads(line, object_pairs_hook=tuple, parse_int=str)
    except (ValueError, RecursionError):
        return []
    msgs = [value for name, value in pairs if name == "msg"][-1:]
    batch = msgs[0] if msgs and isinstance(msgs[0], list) else msgs
    return [name for each in batch for name in _twice(each)]


def _twice(pairs: Any) -> list[str]:
    names = Counter(name for name, _ in pairs) if isinstance(pairs, tuple) else Counter()
    return [name for name, count in names.items() if count > 1]
