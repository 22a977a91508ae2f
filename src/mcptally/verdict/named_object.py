"""Decides whether the object that an error text names comes from the caller.

`No such file: 'notes.txt'` is the caller's mistake if the arguments name the file, and the server's
fault if they do not: then the server looked for a file of its own.
"""

from typing import Final

import polars as pl

_QUOTED: Final = r"""(?:^|[^\w'"`])['"`]([^'"`\n]{0,200})['"`]"""
_UNQUOTED: Final = (
    r"(?i)\bno such (?:table|column|function|module|view|index)[:=]? ([\w.]+)"
    r"|(?:^|[\s(])((?:[A-Za-z]:[\\/]|/)[^\s:,;)]{2,200})"
    r"|\b([\w-]+\.(?:json|ya?ml|toml|ini|conf|cfg|env|properties|db|sqlite3?|onnx|bin|pem|crt|lock"
    r"|log|html|tmpl|j2|so|dll|dat|pkl|npz|gguf|pt))\b"
    r"|^([\w.+-]+): (?:command not found|not found$|no such file or directory)"
)
"""A name after SQLite's "no such", a path, a file of a program, or a program that a shell names."""
_LAST_PART: Final = r"[/\\]([^/\\]{2,}?|\d)(?:\.\w{1,8})?[/\\]?$"
"""The last component of a path, without its suffix."""
_VALUE: Final = r"""(?:"[^"\\]{3,200}"|[-\d.]{2,})\s*[,\]}]"""
"""A string or number among the values of JSON; keys are followed by a colon."""
_PLAIN: Final = r"^[ -!#-\[\]-~]+$"
"""JSON may escape any other character, so that an object with one may be there and not be found."""


def source(frame: pl.DataFrame) -> pl.Series:
    """Return for each row `caller` or `server`, or null where it is not known.

    The object is the caller's if it, or the last part of its path, is in the arguments, or if it
    contains a value of the arguments. It is the first quoted word, else an unquoted name or path.

    Args:
        frame: `stripped` (the text without wrappers) and `arguments` (JSON).
    """
    named = frame.select(
        object=pl.coalesce(
            pl.col("stripped").str.extract(_QUOTED, 1),
            *(pl.col("stripped").str.extract(_UNQUOTED, group) for group in (1, 2, 3, 4)),
        ).str.to_lowercase(),
        arguments=pl.col("arguments").str.to_lowercase(),
    ).with_row_index("row")
    return (
        named.join(_with_value_of_arguments(named), on="row", how="left", maintain_order="left")
        .select(
            pl.when(
                pl.col("arguments").str.contains(pl.col("object"), literal=True)
                | pl.col("arguments").str.contains(
                    pl.col("object").str.extract(_LAST_PART, 1), literal=True
                )
                | pl.col("has_value")
            )
            .then(pl.lit("caller"))
            .when(pl.col("arguments").is_not_null() & pl.col("object").str.contains(_PLAIN))
            .then(pl.lit("server"))
            .alias("source")
        )
        .to_series()
    )


def _with_value_of_arguments(named: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose object contains a value of the arguments, with `has_value` true."""
    return (
        named.filter(pl.col("object").is_not_null())
        .select("row", "object", value=pl.col("arguments").str.extract_all(_VALUE))
        .explode("value")
        .with_columns(value=pl.col("value").str.strip_chars('" ,]}\n'))
        .filter(pl.col("object").str.contains(pl.col("value"), literal=True))
        .select("row", has_value=pl.lit(value=True))
        .unique("row")
    )
