"""Turn the content blocks of results into columns: their types, counts and text."""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from msgspec import UNSET

from mcptally.messages.struct_columns import present, transpose
from mcptally.tables.arrow import series_from_arrow
from mcptally.transcript.events import OTHER_CONTENT, Result

TEXT_LIMIT: Final = 4000
"""Characters kept of the text of a result without `isError`."""

ERROR_TEXT_LIMIT: Final = 65536
"""Characters kept of the text of an error."""


def content_columns(items: Sequence[Result], is_error: pl.Series) -> dict[str, Any]:
    """Return columns about the content blocks of each result, by name."""
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
    plain = np.fromiter((t.__class__ is str for t in types), np.bool_, len(types))
    plain &= np.fromiter((t is not None for t in texts), np.bool_, len(texts))
    for raws in others:
        if any(raws_present := list(map(len, raws))):
            plain &= np.fromiter(
                (
                    not size or bytes(memoryview(raw)[:1]) == b'"'
                    for raw, size in zip(raws, raws_present, strict=True)
                ),
                np.bool_,
                len(raws),
            )

    def count(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        sums = np.concatenate(([0], np.cumsum(mask)))
        return sums[ends] - sums[ends - sizes]  # type: ignore[no-any-return]

    def count_types(*names: str) -> npt.NDArray[np.int64]:
        return count(type_column.is_in(names).to_numpy())

    not_arrays = [i for i, c in enumerate(contents) if c and c[0] is OTHER_CONTENT]
    for i in not_arrays:
        kinds[i] = "other"
    limits = np.where((is_error == "true").fill_null(value=False), ERROR_TEXT_LIMIT, TEXT_LIMIT)
    block_texts = [
        text[:limit] if kind == "text" and text.__class__ is str else None
        for kind, text, limit in zip(types, texts, np.repeat(limits, sizes).tolist(), strict=True)
    ]
    text_column = pl.Series(block_texts, dtype=pl.String)
    bare = text_column.is_not_null().to_numpy() & ~present(annotations) & ~present(metas)
    # Most results have one block, whose text is the text of the result; null if there is none.
    starts = np.where(sizes > 0, ends - sizes, len(block_texts))
    first = text_column.extend_constant(None, 1).gather(starts)
    many = np.flatnonzero(sizes > 1).tolist()
    several = [_join(block_texts[ends[i] - sizes[i] : ends[i]], limits[i]) for i in many]
    joined = first.clone().scatter(many, pl.Series(several, dtype=pl.String))
    offsets = pa.array(np.concatenate(([0], ends)), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, type_column.to_arrow())
    return {
        "content_kind": pl.Series(kinds, dtype=pl.String),
        "content_types": series_from_arrow(lists),
        "blocks_plain": count(~plain) == 0,
        "text_only": count(~bare) == 0,
        "text_blocks": count_types("text").astype(np.uint32),
        "image_blocks": count_types("image").astype(np.uint32),
        "audio_blocks": count_types("audio").astype(np.uint32),
        "resource_blocks": count_types("resource", "resource_link").astype(np.uint32),
        "first_text": first,
        "text": joined,
    }


def _kind(content: Any) -> str:
    return "absent" if content is UNSET else "null" if content is None else "array"


def _join(texts: Sequence[str | None], limit: int) -> str | None:
    """Join the texts of several blocks with line breaks, up to `limit` characters."""
    known = [text for text in texts if text is not None]
    return "\n".join(known)[:limit] if known else None
