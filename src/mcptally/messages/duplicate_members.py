"""Finds members that occur twice in a JSON-RPC message; parsers disagree on which value counts.

Decoding retains only the last value, so the decoded members are shorter than the recorded frame.
Only lines that are longer than their decoded members are read again (1 of 17,575 recorded lines).
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.transcript.events import MEMBERS_DECODER

_PUNCTUATION: Final = len('"":,')
"""Number of bytes that a member takes besides its name and value: quotes, colon and comma."""


def unexplained_sizes(
    sizes: pl.Series, methods: pl.Series, members: Mapping[str, npt.NDArray[np.int64]]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the messages that were longer on the wire than all their members together.

    The sum allows for no spaces, or for one space after each colon and comma.

    Args:
        sizes: the messages' sizes on the wire in bytes.
        methods: the messages' methods.
        members: maps each other member's name to the sizes of its values in bytes; 0 if absent.
    """
    count = len(methods)
    quoted = (methods.str.len_bytes().cast(pl.Int64) + len('""')).fill_null(0)
    lengths = [*members.items(), ("method", quoted.to_numpy())]
    total = np.ones(count, np.int64)
    member_count = np.zeros(count, np.int64)
    for name, length in lengths:
        has = length > 0
        total += length + has * (len(name) + _PUNCTUATION)
        member_count += has
    size = sizes.fill_null(0).to_numpy()
    unexplained: npt.NDArray[np.bool_] = (size > total) & (size != total + 2 * member_count - 1)
    return unexplained


def repeated_members(line: bytes) -> list[str]:
    """Return the names of members that occur twice in the message on a line."""
    try:
        msg = MEMBERS_DECODER.decode(line)["msg"]
        known = MEMBERS_DECODER.decode(msg)
        total = 1 + sum(len(k.encode()) + len(bytes(v)) + _PUNCTUATION for k, v in known.items())
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
    return [name for each in batch for name in _repeated(each)]


def _repeated(pairs: Any) -> list[str]:
    names = Counter(name for name, _ in pairs) if isinstance(pairs, tuple) else Counter()
    return [name for name, count in names.items() if count > 1]
