"""Matches patterns of the Rust `regex` crate with RE2, which compiles them eight times as fast.

A run tries hundreds of patterns on few texts each, so most of the time goes into compiling. The
grammars of both engines are nearly the same, but RE2's classes for words, digits and white space
hold only ASCII characters. So texts are folded first: each letter beyond ASCII becomes `_`, each
digit `0`, each white space a space, and any other character DEL. Patterns that name characters
beyond ASCII, or use syntax that only Rust has, are matched by Rust on the original texts.
"""

import re
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_REPLACEMENTS: Final = (
    (r"[\x0b\s--[\x00-\x7f]]|\x0b", " "),
    (r"[\d--[\x00-\x7f]]", "0"),
    (r"[\w--[\x00-\x7f]]", "_"),
    (r"[^\x00-\x7f]", "\x7f"),
)
_ONLY_RUST: Final = re.compile(
    r"\\[xXuUpP]|\(\?[a-z]*[xuUR]|&&|--|~~|\\[bB]\{|\\[<>]"
    r"|(?<!\\)\[(?:[^\]\\]|\\.)*\[(?!:)"
)
"""Syntax that names characters beyond ASCII, or that RE2 reads in another way."""


def folded(texts: pl.Series) -> pa.Array:
    """Return the texts with characters beyond ASCII replaced, for RE2."""
    affected = texts.str.contains(r"[^\x00-\x7f]|\x0b").fill_null(value=False).arg_true()
    if len(affected):
        some = texts.gather(affected)
        for pattern, replacement in _REPLACEMENTS:
            some = some.str.replace_all(pattern, replacement)
        texts = texts.clone().scatter(affected, some)
    return texts.to_arrow()


def matches(texts: pa.Array, pattern: str, rows: pa.Array | None = None) -> pa.BooleanArray | None:
    """Return which `folded` texts, or which of `rows` of them, contain a match of a pattern.

    RE2 on folded texts gives the results of Rust on the original texts. None: only Rust can decide.
    """
    if not pattern.isascii() or _ONLY_RUST.search(pattern):
        return None
    try:
        return pc.match_substring_regex(texts if rows is None else texts.take(rows), pattern)
    except pa.ArrowInvalid:
        return None
