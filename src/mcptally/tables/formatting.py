"""Text from a template and columns, in place of `pl.format`.

`pl.format` panics (polars 2.1.0: `assertion failed: i < self.len()`) on a column that has an empty
chunk before its last one: it takes the first value of each chunk without asking whether there is
one. Such columns are common: a join makes one chunk per thread (from 256 rows each), `shift` and
`diff` make one of the rows they add, and a filter that drops all rows of a chunk keeps it, empty.
`pl.concat_str` reads its columns value by value, whatever their chunks are. Ruff refuses
`pl.format` everywhere (`banned-api` in pyproject.toml); docs/decisions/0082-text-by-concat-str.md.
"""

import polars as pl


def formatted(template: str, *values: str | pl.Expr) -> pl.Expr:
    """A text per row: `template` with a value in place of each `{}`; null where a value is null.

    Args:
        template: text with one `{}` per value; braces have no other meaning.
        values: names of columns, or expressions, of any type that casts to text.

    Raises:
        ValueError: there are more or fewer values than `{}`.
    """
    first, *texts = template.split("{}")
    parts: list[str | pl.Expr] = [pl.lit(first)] if first else []
    for value, text in zip(values, texts, strict=True):
        parts.append(value)
        if text:
            parts.append(pl.lit(text))
    return pl.concat_str(parts)
