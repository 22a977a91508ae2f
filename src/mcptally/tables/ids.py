"""Computes stable ids for calls, definitions and sessions.

The same input gives the same id in every version, on every machine and with any partitioning.
"""

import binascii
import hashlib

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from mcptally.tables.arrow import series_from_arrow, series_from_numpy

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_BLAKE2B = hashlib.blake2b(digest_size=8)


def digest(text: str | bytes) -> str:
    """Return the 64-bit BLAKE2b digest of text or bytes as 16 hex digits."""
    return _digest(text).hex()


def _digest(text: str | bytes) -> bytes:
    hasher = _BLAKE2B.copy()  # takes half the time of a new hasher
    hasher.update(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return hasher.digest()


def digests(texts: pl.Series) -> pl.Series:
    """Return the `digest` of every value; hash each distinct value once. Null stays null."""
    distinct = texts.unique().drop_nulls()
    return texts.replace_strict(
        distinct, pl.Series([digest(t) for t in distinct], dtype=pl.String), default=None
    )


def call_ids(
    recording: pl.Series, is_s2c: pl.Series, seq: pl.Series, index: pl.Series
) -> pl.Series:
    """Compute a call id (16 hex digits) from each call's recording, direction, seq and index.

    The recording's BLAKE2b digest, computed once for equal recordings in a row, is mixed with the
    numbers by SplitMix64 (Steele et al., 2014), in one pass over entire columns. If several calls
    in a damaged archive have the same recording, direction, seq and index, all of them except the
    first get another id.
    """
    runs = recording.rle().struct
    seeds = b"".join(map(_digest, runs.field("value")))
    state = np.repeat(np.frombuffer(seeds, ">u8").astype(np.uint64), runs.field("len").to_numpy())
    direction = is_s2c.to_numpy().astype(np.uint64)
    for part in (direction, seq.to_numpy().astype(np.uint64), index.to_numpy().astype(np.uint64)):
        state = _splitmix(state ^ _splitmix(part + _GOLDEN))
    if not series_from_numpy(state).is_unique().all():
        nth = pl.int_range(pl.len()).over("state")
        states = series_from_numpy(state, "state").to_frame()
        again = states.select(nth.cast(pl.UInt64)).to_series().to_numpy()
        state = np.where(again > 0, _splitmix(state ^ _splitmix(again + _GOLDEN)), state)
    return _hex(state)


def _splitmix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        value = value + _GOLDEN
        value = (value ^ (value >> np.uint64(30))) * _MIX1
        value = (value ^ (value >> np.uint64(27))) * _MIX2
        return value ^ (value >> np.uint64(31))


def _hex(values: npt.NDArray[np.uint64]) -> pl.Series:
    text = binascii.hexlify(values.astype(">u8").tobytes())
    offsets = np.arange(0, 16 * values.size + 1, 16, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return series_from_arrow(pa.Array.from_buffers(pa.large_string(), values.size, buffers))
