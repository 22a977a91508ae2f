"""Stores each distinct long result once, because traffic consists mostly of repeated long results.

The text of a long result is an Arrow buffer. Rows refer to the text and to its long members without
copying them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Raw

from mcptally.messages.content_blocks import LONG_RESULT, RESULT_DECODER
from mcptally.tables.arrow import series_from_arrow, series_from_numpy
from mcptally.transcript.events import ABSENT, Result

REFERENCE: Final = "long "
"""Prefix of the names of columns that contain indexes of texts in `LongResults`."""

_MEMBERS: Final = ("structured_content", "tools")
"""The members that may make up most of a result."""

_LONG_MEMBER: Final = 1 << 12
"""Minimum size in bytes of a member to which rows refer; smaller members are copied."""

_MAX_CANDIDATES: Final = 16
"""Maximum number of known results of equal length and ending with which a result is compared."""

_VIEW: Final = np.dtype([("size", "<u4"), ("prefix", "S4"), ("buffer", "<u4"), ("offset", "<u4")])
"""The layout of an Arrow string view's entry for a value of more than 12 bytes."""

_OBJECT: Final = Raw(b"{}")


class _KeptResult(msgspec.Struct, frozen=True):
    """A distinct long result, and where its texts are."""

    text: Raw
    result: Result
    """The decoded result, except for the members in `rows`."""
    odd: bool
    """Whether the result does not match the type `Result`."""
    rows: dict[str, int]
    """Maps column names to indexes of texts in `LongResults`."""


class DecodedResults(msgspec.Struct, frozen=True):
    """The distinct results among the given texts, decoded."""

    results: list[Result]
    odd: list[int]
    """Indexes of results that do not match the type `Result`."""
    texts: list[Raw]
    """The JSON of each result; absent if the result is in a buffer of `LongResults`."""
    rows: dict[str, pl.Series]
    """Maps column names to the index of each result's text in `LongResults`; null for short
    results."""
    result_of_text: pl.Series
    """For each given text, the index of its result."""


class LongResults:
    """The distinct long results in a chunk of lines, each stored once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], list[_KeptResult]] = {}
        self._buffers: list[pa.Buffer] = []
        self._views: list[tuple[int, bytes, int, int]] = []

    def decode(self, texts: Sequence[Raw]) -> DecodedResults:
        """Decode each distinct result once: most results in traffic repeat another one."""
        found = [self._find(text) if len(text) >= LONG_RESULT else text for text in texts]
        keys = [bytes(each) if isinstance(each, Raw) else id(each) for each in found]
        distinct = dict(zip(keys, found, strict=True))
        number = {key: i for i, key in enumerate(distinct)}
        kept = [each if isinstance(each, Raw) else ABSENT for each in distinct.values()]
        results, odd = RESULT_DECODER.many([text if len(text) else _OBJECT for text in kept])
        columns: dict[str, list[int | None]] = {}
        for i, known in enumerate(distinct.values()):
            if isinstance(known, _KeptResult):
                results[i] = known.result
                if known.odd:
                    odd.append(i)
                for name, row in known.rows.items():
                    columns.setdefault(name, [None] * len(distinct))[i] = row
        return DecodedResults(
            results,
            odd,
            kept,
            {name: pl.Series(values, dtype=pl.UInt32) for name, values in columns.items()},
            pl.Series([number[key] for key in keys], dtype=pl.UInt32),
        )

    def with_texts(self, replies: pl.DataFrame) -> pl.DataFrame:
        """Replace each column whose name begins with `REFERENCE` with a column of texts."""
        names = [name for name in replies.columns if name.startswith(REFERENCE)]
        if not names:
            return replies
        texts = self._texts()
        number = np.arange(len(texts) + replies.height)
        filled = []
        for name in names:
            column = name.removeprefix(REFERENCE)
            known = replies.get_column(name)
            place = number[len(texts) :].copy()
            place[known.is_not_null().to_numpy()] = known.drop_nulls().to_numpy()
            every = pl.concat([texts.alias(column), replies.get_column(column)])
            # Use a join: other operations would copy the texts if there are several chunks.
            joined = pl.DataFrame({"place": series_from_numpy(place)}).join(
                pl.DataFrame({"place": series_from_numpy(number), column: every}),
                on="place",
                how="left",
                maintain_order="left",
            )
            filled.append(joined.get_column(column))
        return replies.with_columns(filled)

    def _texts(self) -> pl.Series:
        views = np.array(self._views, _VIEW)
        buffers = [None, pa.py_buffer(views), *self._buffers]
        return series_from_arrow(pa.Array.from_buffers(pa.string_view(), len(views), buffers))

    def _find(self, text: Raw) -> _KeptResult:
        """Return the stored result with this text; if the text is new, store its result first."""
        candidates = self._known.setdefault((len(text), bytes(memoryview(text)[-64:])), [])
        for known in candidates:
            if known.text == text:
                return known
        found = self._add(bytes(text))
        if len(candidates) < _MAX_CANDIDATES:
            candidates.append(found)
        return found

    def _add(self, data: bytes) -> _KeptResult:
        # Copy the result, so that the memory of its lines can be freed.
        text = Raw(data)
        (result,), odd = RESULT_DECODER.many([text])
        self._buffers.append(pa.py_buffer(data))
        rows = {"response": self._view(text)}
        for name in _MEMBERS:
            member = getattr(result, name)
            if len(member) >= _LONG_MEMBER:
                rows[name] = self._view(member)
                setattr(result, name, ABSENT)
        return _KeptResult(text, result, bool(odd), rows)

    def _view(self, part: Raw) -> int:
        """Add a view of a part of the last buffer, and return the view's index."""
        offset = _address(part) - self._buffers[-1].address
        prefix = bytes(memoryview(part)[:4])
        self._views.append((len(part), prefix, len(self._buffers) - 1, offset))
        return len(self._views) - 1


def _address(data: Raw) -> int:
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address
