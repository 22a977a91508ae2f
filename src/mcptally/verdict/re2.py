"""Patterns of the Rust `regex` crate matched by RE2, which compiles them eight times as fast.

A run tries hundreds of patterns on few texts each, so compiling them is most of the work. Both
engines are automata with nearly one grammar; they differ in what a word, a digit and a space is:
RE2 knows ASCII only. So the texts are folded: a letter that is not ASCII becomes `_`, a digit `0`,
a space a space, anything else DEL, one character for one. A pattern that asks for such a
character itself, or is written in what only Rust has, stays with Rust and the texts as they are.
"""

import functools
import re
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_FOLDS: Final = (
    (r"[\x0b\s--[\x00-\x7f]]|\x0b", " "),
    (r"[\d--[\x00-\x7f]]", "0"),
    (r"[\w--[\x00-\x7f]]", "_"),
    (r"[^\x00-\x7f]", "\x7f"),
)
_ONLY_RUST: Final = re.compile(
    r"\\[xXuUpP]|\(\?[a-z]*[xuUR]|&&|--|~~|\\[bB]\{|\\[<>]"
    r"|(?<!\\)\[(?:[^\]\\]|\\.)*\[(?!:)"
)
"""What asks for characters beyond ASCII, or is read otherwise by RE2."""
_PROBE: Final = pa.array([""], pa.large_string())


def folded(texts: pl.Series) -> pa.Array:
    """The texts as RE2 may read them for Rust."""
    odd = texts.str.contains(r"[^\x00-\x7f]|\x0b").fill_null(value=False).arg_true()
    if len(odd):
        some = texts.gather(odd)
        for pattern, by in _FOLDS:
            some = some.str.replace_all(pattern, by)
        texts = texts.clone().scatter(odd, some)
    return texts.to_arrow()


@functools.cache
def read_alike(pattern: str) -> bool:
    """Whether RE2 finds in folded texts what Rust finds in the texts themselves."""
    if not pattern.isascii() or _ONLY_RUST.search(pattern):
        return False
    try:
        pc.match_substring_regex(_PROBE, pattern)
    except pa.ArrowInvalid:
        return False
    return True
