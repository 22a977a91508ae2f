"""Decodes results, and converts their content blocks to columns of types, counts and text."""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from msgspec import UNSET, Raw, UnsetType

from mcptally.messages.struct_columns import present, scalar_columns, transpose
from mcptally.tables.arrow import indices, series_from_arrow
from mcptally.transcript.events import ABSENT, OTHER_CONTENT, Block, LenientDecoder, Result

TEXT_LIMIT: Final = 4000
"""Maximum number of characters that are kept of a result's text, if it has no `isError`."""

ERROR_TEXT_LIMIT: Final = 65536
"""Maximum number of characters that are kept of an error's text."""

LONG_RESULT: Final = 1 << 16
"""Size in bytes from which a result is long. Only the beginning of a long result's texts is
decoded."""

_MAX_ESCAPE: Final = len(r"\ud83d\ude00")
"""Maximum number of bytes that a character takes in JSON."""


class _LongBlock(Block, gc=False, rename="camel"):
    text: Raw = ABSENT  # type: ignore[assignment]
    """Raw JSON of the text; `_decode_long` replaces it with a decoded string."""


class _LongResult(Result, gc=False, rename="camel"):
    content: list[_LongBlock] | UnsetType | None = UNSET  # type: ignore[assignment]


class _ResultDecoder(LenientDecoder[Result]):
    """Decodes results; of a long result, only the part of each text that is kept."""

    def __init__(self) -> None:
        super().__init__(Result)
        whole = self.decode

        def decode(text: Raw) -> Result:
            return whole(text) if len(text) < LONG_RESULT else _decode_long(text)

        self.decode = decode


RESULT_DECODER: Final = _ResultDecoder()


_LONG_DECODER: Final = msgspec.json.Decoder(_LongResult)
_TEXT_DECODER: Final[msgspec.json.Decoder[str | None]] = msgspec.json.Decoder(str | None)


def _decode_long(text: Raw) -> Result:
    result = _LONG_DECODER.decode(text)
    limit = ERROR_TEXT_LIMIT if bytes(result.is_error) == b"true" else TEXT_LIMIT
    for block in result.content or ():
        block.text = _beginning(block.text, limit)  # type: ignore[assignment]
    return result


def _beginning(text: Raw, limit: int) -> str | UnsetType | None:
    """Decode at least the first `limit` characters of a JSON string, or all of a shorter string.

    Raises:
        msgspec.ValidationError: `text` is not a JSON string.
    """
    size = (limit + 2) * _MAX_ESCAPE
    if len(text) <= size or bytes(memoryview(text)[:1]) != b'"':
        return _TEXT_DECODER.decode(text) if len(text) else UNSET
    head = bytes(memoryview(text)[:size])
    for cut in range(_MAX_ESCAPE):  # the cut may be inside the last character
        try:
            return _TEXT_DECODER.decode(head[: size - cut] + b'"')
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return _TEXT_DECODER.decode(text)


def result_columns(items: Sequence[Result]) -> dict[str, Any]:
    """Map column names to columns that describe results."""
    columns = scalar_columns(items, Result)
    return (
        columns
        | content_columns(items, columns["is_error"])
        | {
            "has_structured_content": columns["structured_content"].is_not_null(),
            "has_meta": pl.Series([item.meta is not UNSET for item in items], dtype=pl.Boolean),
        }
    )


def content_columns(items: Sequence[Result], is_error: pl.Series) -> dict[str, Any]:
    """Map column names to columns that describe the content blocks of results."""
    contents = [item.content for item in items]
    sizes = np.fromiter((len(c) if c else 0 for c in contents), np.int64, len(contents))
    ends = np.cumsum(sizes)
    blocks = list(itertools.chain.from_iterable(c for c in contents if c))
    kinds = ["array" if c else _kind(c) for c in contents]
    if blocks:
        types, texts, *others, annotations, metas = transpose(blocks)
    else:
        types, texts, others, annotations, metas = (), (), [], (), ()
    type_column = pl.Series([t if t.__class__ is str else "" for t in types], dtype=pl.String)
    kind_of_block = np.fromiter(map(_KINDS.get, types, itertools.repeat(0)), np.int8, len(types))
    plain = np.fromiter((t.__class__ is str for t in types), np.bool_, len(types))
    plain[[i for i, text in enumerate(texts) if text is None]] = False
    for raws in others:
        if not _all_absent(raws):
            plain &= np.fromiter(
                (not len(raw) or bytes(memoryview(raw)[:1]) == b'"' for raw in raws),
                np.bool_,
                len(raws),
            )

    def count(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        sums = np.concatenate(([0], np.cumsum(mask)))
        return sums[ends] - sums[ends - sizes]  # type: ignore[no-any-return]

    def count_kind(name: str) -> npt.NDArray[np.uint32]:
        return count(kind_of_block == _KINDS[name]).astype(np.uint32)

    not_arrays = [i for i, c in enumerate(contents) if c and c[0] is OTHER_CONTENT]
    for i in not_arrays:
        kinds[i] = "other"
    limits = np.where((is_error == "true").fill_null(value=False), ERROR_TEXT_LIMIT, TEXT_LIMIT)
    block_texts = [
        text[:limit] if kind == "text" and text.__class__ is str else None
        for kind, text, limit in zip(types, texts, np.repeat(limits, sizes).tolist(), strict=True)
    ]
    text_column = pl.Series(block_texts, dtype=pl.String)
    bare = text_column.is_not_null().to_numpy()
    for raws in (annotations, metas):
        if not _all_absent(raws):
            bare &= ~present(raws)
    # Most results have one block, whose text is the result's text. The text of a result without
    # blocks is null.
    starts = np.where(sizes > 0, ends - sizes, len(block_texts))
    first = text_column.extend_constant(None, 1).gather(indices(starts))
    many = np.flatnonzero(sizes > 1).tolist()
    several = [_join(block_texts[ends[i] - sizes[i] : ends[i]], limits[i]) for i in many]
    joined = first.clone().scatter(many, pl.Series(several, dtype=pl.String))
    offsets = pl.Series(np.concatenate(([0], ends), dtype=np.int64)).to_arrow()
    lists = pa.LargeListArray.from_arrays(offsets, type_column.to_arrow())
    return {
        "content_kind": pl.Series(kinds, dtype=pl.String),
        "content_types": series_from_arrow(lists),
        "blocks_plain": count(~plain) == 0,
        "text_only": count(~bare) == 0,
        **{f"{name}_blocks": count_kind(name) for name in ("text", "image", "audio", "resource")},
        "first_text": first,
        "text": joined,
    }


_KINDS: Final = {"text": 1, "image": 2, "audio": 3, "resource": 4, "resource_link": 4}
"""Maps the block types that are counted to internal codes; links count as resources."""


def _all_absent(raws: Sequence[Raw]) -> bool:
    # Count identical objects, which is faster than computing lengths.
    return raws.count(ABSENT) == len(raws)


def _kind(content: Any) -> str:
    return "absent" if content is UNSET else "null" if content is None else "array"


def _join(texts: Sequence[str | None], limit: int) -> str | None:
    """Join the texts of several blocks with line breaks; keep at most `limit` characters."""
    known = [text for text in texts if text is not None]
    return "\n".join(known)[:limit] if known else None
