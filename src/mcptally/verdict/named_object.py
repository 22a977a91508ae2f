"""Decides whether the object that an error text names comes from the caller.

`No such file: 'notes.txt'` is the caller's mistake if the arguments name the file. If they do not,
the server looked for a file of its own, and is at fault.
"""

from typing import Final

import numpy as np
import polars as pl

from mcptally.tables.queries import run_query

_QUOTED: Final = r"""(?:^|[^\w'"`])['"`]([^'"`\n]*)['"`]"""
_UNQUOTED: Final = (
    r"(?i)\bno such (?:table|column|function|module|view|index)[:=]? ((?-i:[\w.])+)"
    r"|(?:^|[\s(])((?:[A-Za-z]:[\\/]|/)[^\s:,;)]{2,})"
    r"|\b((?-i:[\w-])+\.(?:json|ya?ml|toml|ini|conf|cfg|env|properties|db|sqlite3?|onnx|bin|pem|crt|lock"
    r"|log|html|tmpl|j2|so|dll|dat|pkl|npz|gguf|pt))\b"
    r"|^((?-i:[\w.+-])+): (?:command not found|not found$|no such file or directory)"
)
"""A name after SQLite's "no such", a path, a file of a program, or a program that a shell names."""
_LAST_PART: Final = r"[/\\]([^/\\]{2,}?|\d)(?:\.\w{1,8})?[/\\]?$"
"""The last component of a path, without its suffix."""
_VALUE: Final = r"""(?:"[^"\\]{3,200}"|[-\d.]{2,})\s*[,\]}]"""
"""A string or number among the values of JSON; keys are followed by a colon."""
_PLAIN: Final = r"^[ -!#-\[\]-~]+$"
"""JSON may escape any other character, so that an object with one may be there and not be found."""


def source(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return for each call `caller` or `server`, or null where it is not known.

    The object is the caller's if it, or the last part of its path, is in the arguments, or if it
    contains a value of the arguments. It is the first quoted word, else an unquoted name or path.

    Args:
        texts: texts without wrappers.
        calls: `text` (row number in `texts`) and `arguments` (JSON).
    """
    objects = _objects(texts)
    if not objects.height:
        return pl.Series([None], dtype=pl.String).new_from_index(0, calls.height)
    arguments = pl.col("arguments")
    is_part = arguments.str.contains(pl.col("last_part"), literal=True).fill_null(value=False)
    keyed = calls.with_columns(key=arguments.hash())
    named = (
        keyed.lazy()
        .filter(arguments.is_not_null())
        .unique(["text", "key"])
        .join(objects.lazy(), on="text")
        .with_columns(arguments.str.to_lowercase())
        .with_columns(is_named=arguments.str.contains(pl.col("object"), literal=True) | is_part)
        .with_row_index("row")
        .pipe(run_query)
    )
    is_callers = named["is_named"] | _has_value(named)
    sources = named.lazy().select(
        "text",
        "key",
        source=pl.when(is_callers).then(pl.lit("caller")).when("is_plain").then(pl.lit("server")),
    )
    return (
        keyed.lazy()
        .select("text", "key")
        .join(sources, on=["text", "key"], how="left", maintain_order="left")
        .pipe(run_query)
        .get_column("source")
    )


def _objects(texts: pl.Series) -> pl.DataFrame:
    """Return `text`, `object`, `last_part` of its path and `is_plain` of texts with an object."""
    unquoted = pl.when(pl.col("quoted").is_null()).then("whole").str.extract_groups(_UNQUOTED)
    return (
        texts.to_frame("whole")
        .lazy()
        .select("whole", quoted=pl.col("whole").str.extract(_QUOTED, 1))
        .with_row_index("text")
        .with_columns(unquoted.alias("unquoted"))
        .unnest("unquoted", separator="_")
        .select("text", object=pl.coalesce("quoted", "^unquoted_.*$").str.to_lowercase())
        .drop_nulls("object")
        .with_columns(
            last_part=pl.col("object").str.extract(_LAST_PART, 1),
            is_plain=pl.col("object").str.contains(_PLAIN),
        )
        .pipe(run_query)
    )


def _has_value(named: pl.DataFrame) -> pl.Series:
    """Return which objects contain a value of the arguments; False where `is_named`."""
    found = (
        named.lazy()
        .filter(~pl.col("is_named"))
        .select("object", "row", value=pl.col("arguments").str.extract_all(_VALUE))
        .explode("value")
        .filter(
            pl.col("object").str.contains(pl.col("value").str.strip_chars('" ,]}\n'), literal=True)
        )
        .pipe(run_query)
    )
    has_value = np.zeros(named.height, dtype=np.bool_)
    has_value[found["row"].to_numpy()] = True
    return pl.Series(has_value)
