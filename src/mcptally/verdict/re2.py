"""Translates patterns of the Rust `regex` crate to RE2, which compiles them eight times as fast.

A run tries hundreds of patterns on few texts each, so most of the time goes into compiling. The
grammars of both engines are nearly the same, but RE2's classes for words, digits and white space
hold only ASCII characters. So texts are folded first: each letter beyond ASCII becomes `_`, each
digit `0`, each white space a space, and any other character DEL. A pattern that names characters
beyond ASCII has two translations (`forms`), the one of a pattern that names `0` is not exact, and a
pattern with syntax that only Rust knows has none.
"""

import functools
import re
import sys
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from pyarrow.compute import call_function

from mcptally.tables.arrow import indices, series_from_arrow

_REPLACEMENTS: Final = (
    (r"[\x01\x0b\s--[\x00-\x7f]]|\x0b", " "),
    (r"[\d--[\x00-\x7f]]", "0"),
    (r"[^\w\x00-\x7f]", "\x7f"),
)
_NEEDS_REPLACEMENT: Final = r"[^\w\x00-\x7f]|[\d--[\x00-\x7f]]|\x0b"
"""Matches texts in which one of `_REPLACEMENTS` replaces a character; in most, only letters are
beyond ASCII."""
_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
_LETTERS: Final = bytes(range(0xC0)) + b"_" * 0x40
"""A table for `bytes.translate`: `_` for the first byte of each character beyond ASCII."""
_FOLDED: Final = r"_0 \x7f"
"""The characters of a class in RE2 that `fold` makes of characters beyond ASCII."""
_NEVER: Final = r"\x01"
"""A character that no plain text contains (`Folding.plain`)."""
_SCRIPTS: Final = (
    "Arabic|Armenian|Bengali|Cyrillic|Devanagari|Ethiopic|Georgian|Greek|Gujarati|Gurmukhi|Han"
    "|Hangul|Hebrew|Hiragana|Kannada|Katakana|Khmer|Lao|Malayalam|Myanmar|Sinhala|Tamil|Telugu|Thai"
)
_TOKEN: Final = re.compile(
    r"(?P<beyond>\\p\{\w+\}|[^\x00-\x7f](?:-[^\x00-\x7f])?)"
    r"|(?P<open>\[\^?\]?)|(?P<close>\])|\\.|[\x00-Z^-\x7f]+|.",
    re.DOTALL,
)
_ONLY_RUST: Final = re.compile(
    r"\\[xXuUP]|\\p(?!\{(?:" + _SCRIPTS + r")\})|\(\?[a-z]*[xuUR]|\\[bB]\{|\\[<>]"
    r"|(?<!\\)\[(?:[^\]\\]|\\.)*(?:&&|--|~~|\[(?!:))"
)
"""Syntax that denotes characters beyond ASCII otherwise, or has another meaning in RE2."""
_CODE_POINT: Final = re.compile(r"\\x\{0*([0-9a-fA-F]{2,6})\}|\\.", re.DOTALL)
_ASCII_VARIANTS: Final = "\u017f\u212a"
"""Characters beyond ASCII that match `s` and `k` where case is ignored."""
_REPETITION: Final = re.compile(r"\{\d*,?\d*\}")
"""How often something is repeated. Any other `0` also matches a folded digit."""
_RANGE: Final = re.compile(r"([^\x00-\x7f])-([^\x00-\x7f])")
_NEGATED: Final = re.compile(r"(?<!\\)\[\^(?:[^\]\\]|\\.)*?(?:[^\x00-\x7f]|\\p)")
"""A negated class with characters beyond ASCII."""


class Forms(msgspec.Struct, frozen=True):
    """Translations of one pattern for RE2."""

    plain: str
    """Matches the same plain texts (`Folding.plain`)."""
    folded: str | None
    """Matches every folded text whose original text matches, and perhaps others; None: unknown."""
    exact: bool
    """Whether `folded` matches exactly the texts whose original text matches."""


class Folding(msgspec.Struct, frozen=True):
    """A column of texts as RE2 reads it."""

    folded: pa.Array
    """The texts with characters beyond ASCII replaced. Their type is binary: RE2 compiles patterns
    for bytes faster than for UTF-8."""
    plain: npt.NDArray[np.bool_]
    """Which texts consist of ASCII characters and have no character that folding changes."""


def fold(texts: pl.Series) -> Folding:
    """Return the form of the texts that RE2 reads."""
    text = pl.col("text")
    frame = texts.alias("text").to_frame()
    marks = frame.select(
        affected=(
            (text.str.len_bytes() != text.str.len_chars()) | text.str.contains("\x0b", literal=True)
        ).fill_null(value=False),
        marked=text.str.contains("\x01", literal=True).fill_null(value=False),
    )
    affected, marked = (marks.get_column(name).to_numpy() for name in ("affected", "marked"))
    if affected.any():
        rows = indices(np.flatnonzero(affected))
        texts = texts.clone().scatter(rows, _fold_affected(texts.gather(rows)))
    return Folding(texts.to_arrow().view(pa.large_binary()), ~(affected | marked))


def fold_changed(texts: pl.Series, originals: pl.Series, folding: Folding) -> Folding:
    """Return the form of texts of which few differ from `originals`, whose form is `folding`."""
    changed = texts.ne_missing(originals)
    if not changed.any():
        return folding
    part = fold(texts.filter(changed))
    plain = folding.plain.copy()
    plain[changed.to_numpy()] = part.plain
    values = [folding.folded, changed.to_arrow(), part.folded]
    return Folding(call_function("replace_with_mask", values), plain)


def _fold_affected(texts: pl.Series) -> pl.Series:
    rows = texts.str.contains(_NEEDS_REPLACEMENT).arg_true()
    if len(rows):
        others = texts.gather(rows)
        for pattern, replacement in _REPLACEMENTS:
            others = others.str.replace_all(pattern, replacement)
        texts = texts.scatter(rows, others)
    # What is left beyond ASCII is letters: their first byte becomes `_`, the others go.
    data = b"".join(texts.cast(pl.Binary)).translate(_LETTERS, _CONTINUATION_BYTES)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(texts.str.len_chars().to_numpy(), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return series_from_arrow(pa.Array.from_buffers(pa.large_string(), len(texts), buffers))


@functools.cache
def forms(pattern: str) -> Forms | None:
    """Return the translations of a pattern of the Rust `regex` crate; None if it has none."""
    if r"\x{" in pattern:
        pattern = _CODE_POINT.sub(_character, pattern)
    if _ONLY_RUST.search(pattern) or _has_ascii_variants(pattern):
        return None
    if pattern.isascii() and "\\p" not in pattern:
        return Forms(pattern, pattern, exact="0" not in _REPETITION.sub("", pattern))
    return Forms(
        plain=_translated(pattern, _NEVER),
        folded=None if _NEGATED.search(pattern) else _translated(pattern, _FOLDED),
        exact=False,
    )


def _character(escape: re.Match[str]) -> str:
    r"""Return the character beyond ASCII that `\x{…}` stands for; other escapes as they are."""
    code = int(escape[1] or "0", 16)
    return chr(code) if 0x7F < code <= sys.maxunicode else escape[0]


def _has_ascii_variants(pattern: str) -> bool:
    """Return whether the pattern has a character or range with one of `_ASCII_VARIANTS`."""
    if pattern.isascii():
        return False
    ranges = _RANGE.findall(pattern)
    return any(
        each in pattern or any(low <= each <= high for low, high in ranges)
        for each in _ASCII_VARIANTS
    )


def _translated(pattern: str, characters: str) -> str:
    """Return the pattern with each character beyond ASCII replaced by one of `characters`."""
    in_class = False
    parts = []
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token["beyond"]:
            text = characters if in_class else f"[{characters}]"
        elif token["open"]:
            in_class = True
        elif token["close"]:
            in_class = False
        parts.append(text)
    return "".join(parts)
