"""Formats text from a template and columns; replaces `pl.format`.

`pl.format` panics (polars 2.1.0: `assertion failed: i < self.len()`) on a column with an empty
chunk before the last chunk, because it takes the first value of each chunk without checking that
the chunk has a value. Empty chunks are common: a join makes one chunk per thread, `shift` and
`diff` make a chunk for the rows that they add, and a filter keeps chunks whose rows it drops.
`pl.concat_str` works with any chunks. Ruff forbids `pl.format` everywhere (`banned-api` in
pyproject.toml); see docs/design/pipeline.md.
"""

import polars as pl


def formatted(template: str, *values: str | pl.Expr) -> pl.Expr:
    """Return an expression that replaces each `{}` in `template` with a value.

    The result is null in rows where any value is null.

    Args:
        template: text with one `{}` per value; braces have no other meaning.
        values: column names or expressions, of any type that casts to text.

    Raises:
        ValueError: the number of values differs from the number of `{}`.
    """
    first, *texts = template.split("{}")
    parts: list[str | pl.Expr] = [pl.lit(first)] if first else []
    for value, text in zip(values, texts, strict=True):
        parts.append(value)
        if text:
            parts.append(pl.lit(text))
    return pl.concat_str(parts)


def counted(value: str | pl.Expr, singular: str, plural: str) -> pl.Expr:
    """Return an expression for a count with its noun, such as `1 event` or `2 events`.

    A null count stays null.

    Args:
        value: column name or expression for the count.
        singular: the noun in the singular, with words that must agree: `event is missing`.
        plural: the noun and its words in the plural.
    """
    number = pl.col(value) if isinstance(value, str) else value
    noun = pl.when(number == 1).then(pl.lit(singular)).otherwise(pl.lit(plural))
    return formatted("{} {}", number, noun)
