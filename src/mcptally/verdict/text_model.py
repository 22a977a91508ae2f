r"""Gives a second opinion on failed calls, from a linear model of the words in the error text.

text → masked text → terms → weights (rules/text_model.json) → probabilities

The model was fitted on labelled texts (`python -m tests.benchmarks.calibrate`). It uses no names:
the tool's name, the values of arguments, URLs, paths, quoted words and numbers other than statuses
are masked. A term is a part of a word (`FileNotFoundError` has four), or up to three consecutive
parts. The model is not used for hidden errors, because it did not improve their detection.
"""

import functools
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally import rules as rule_files
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.outcomes import Verdict
from mcptally.tables.queries import run_query

FILE: Final = "text_model.json"
CLASSES: Final = (Verdict.BUSINESS, Verdict.TOOL_FAILURE, Verdict.INFRASTRUCTURE)
"""The classes, in the order in which probabilities are given."""
LONGEST: Final = 3
"""Maximum number of word parts in a term."""
HEAD: Final = 600
"""Maximum number of characters that the model reads of a text."""
QUOTED: Final = " quoted "
"""Replaces a quoted word, or the value of an argument."""

_MASKED: Final = (
    (r"https?://\S+", " url "),
    (r"(?:/[\w.\-]+){2,}|\b[A-Za-z]:\\\S+", " path "),
    (
        r"""(^|[^A-Za-z0-9])(?:"[^\s"]{1,60}"|'[^\s']{1,60}'|`[^\s`]{1,60}`)([^:A-Za-z0-9]|$)""",
        f"${{1}}{QUOTED}${{2}}",
    ),
    (r"(\b[45]\d\d\b)|\d+", "${1}"),
)
_PART: Final = r"\p{Lu}?\p{Ll}+|\p{Lu}+|\p{L}|[45]\d\d|[^\w\s]"
"""Matches a part of a word, an HTTP status, or a symbol; in scripts without case, a single letter.
"""

Opinions: TypeAlias = npt.NDArray[np.float64]
"""Probabilities, with one row per text and one column per class; all equal if no term is known."""


class Terms(StageTable):
    """One row per pair of a text and one of its terms."""

    row = Column(pl.UInt32, "Number of the text.")
    term = Column(pl.String, "Up to three parts of words in a row, in lower case.")
    part = Column(pl.String, "A part of a word.")
    idf = Column(pl.Float64, "How rare the term is in the labelled texts.")


class TextModel(msgspec.Struct, frozen=True, dict=True):
    """The fitted model, and the parameters for pooling it with the rules (`weighing.pooled`)."""

    pooled: tuple[float, float, float]
    """The model's weight relative to the rules, and one temperature for when they agree and one for
    when they disagree."""
    intercept: tuple[float, ...]
    terms: tuple[str, ...]
    idf: tuple[float, ...]
    unknown_idf: float
    """The idf of an unknown term. Such a term has no weights, so a text that has only such terms
    gets no opinion."""
    weights: tuple[tuple[float, ...], ...]
    """For each of `CLASSES`, the weight of every term."""

    @functools.cached_property
    def table(self) -> pl.DataFrame:
        """One row per term: `term`, `idf` and a column of weights per class."""
        columns = dict(zip(map(str, CLASSES), self.weights, strict=True))
        return pl.DataFrame({"term": self.terms, "idf": self.idf, **columns})


@functools.cache
def shipped_model() -> TextModel:
    """Load the model that is shipped with the package."""
    text = Path(rule_files.__file__).with_name(FILE).read_bytes()
    return msgspec.json.decode(text, type=TextModel)


def masked(text: pl.Expr) -> pl.Expr:
    """Mask names, values and numbers in each text."""
    for pattern, replacement in _MASKED:
        text = text.str.replace_all(pattern, replacement)
    return text


def terms(texts: pl.Series) -> pl.DataFrame:
    """Split masked texts into distinct terms; return `row` (index of the text) and `term`."""
    found = _texts_by_term(texts).explode(Terms.row.name, empty_as_null=False)
    return found.select(Terms.row.name, Terms.term.name).pipe(run_query)


def _texts_by_term(texts: pl.Series) -> pl.LazyFrame:
    """Return each distinct `term` in masked texts, with a list of its texts (`row`)."""
    part, row = Terms.part.col, Terms.row.col
    before = [pl.when(row == row.shift(back)).then(part.shift(back)) for back in range(LONGEST)]
    return (
        texts.alias(Terms.part.name)
        .to_frame()
        .with_row_index(Terms.row.name)
        .lazy()
        .with_columns(part.str.extract_all(_PART))
        .explode(Terms.part.name, empty_as_null=False)
        .drop_nulls()
        .with_columns(part.str.to_lowercase())
        .select(
            Terms.row.name,
            *(
                pl.concat_str(*reversed(before[:length]), separator=" ").alias(str(length))
                for length in range(1, LONGEST + 1)
            ),
        )
        .unpivot(index=Terms.row.name, value_name=Terms.term.name)
        .drop_nulls()
        .group_by(Terms.term.name)
        .agg(row.unique())
    )


def opinions(texts: pl.Series, model: TextModel) -> Opinions:
    """Return the model's probabilities of `CLASSES` for masked texts, with one row per text."""
    weighed = _weighed(texts, model)
    sums = (
        weighed.lazy()
        .group_by(Terms.row.name)
        .agg(pl.col(*map(str, CLASSES)).sum())
        .pipe(run_query)
    )
    scores = np.zeros((len(texts), len(CLASSES)))
    rows = sums.get_column(Terms.row.name).to_numpy()
    # Round: the order of terms, and so the last digits, may differ between runs.
    found = sums[list(map(str, CLASSES))].to_numpy().round(9)
    scores[rows] = found + np.array(model.intercept)
    return softmax(scores)


def softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return probabilities in proportion to the exponentials of each row's scores."""
    scores = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    total: npt.NDArray[np.float64] = scores / scores.sum(axis=1, keepdims=True)
    return total


def words(
    texts: pl.Series, verdicts: pl.Series, model: TextModel, most: int
) -> list[list[tuple[str, float]]]:
    """Return the known terms in masked texts with their weights for the verdict, largest first.

    A weight is the term's effect on the verdict's log odds against the mean of other classes.

    Args:
        texts: the masked texts.
        verdicts: the verdict on each text.
        model: the model with the weights.
        most: maximum number of terms returned per text.
    """
    own, others = pl.lit(None, pl.Float64), pl.lit(None, pl.Float64)
    for name in map(str, CLASSES):
        is_own = pl.col("verdict") == name
        own = pl.when(is_own).then(pl.col(name)).otherwise(own)
        rest = pl.mean_horizontal(str(other) for other in CLASSES if other != name)
        others = pl.when(is_own).then(rest).otherwise(others)
    verdict = verdicts.alias("verdict").to_frame().with_row_index(Terms.row.name).lazy()
    found = (
        _weighed(texts, model)
        .lazy()
        .join(verdict, on=Terms.row.name)
        .select(Terms.row.name, Terms.term.name, weight=(own - others).round(6))
        .drop_nulls()
        .sort(Terms.row.col, -pl.col("weight").abs(), Terms.term.col)
        .group_by(Terms.row.name, maintain_order=True)
        .head(most)
        .pipe(run_query)
    )
    by_text: list[list[tuple[str, float]]] = [[] for _ in range(len(texts))]
    for row, term, weight in found.iter_rows():
        by_text[row].append((term, weight))
    return by_text


def _weighed(texts: pl.Series, model: TextModel) -> pl.DataFrame:
    """Return each text's known terms and their weights: idf values, scaled to length 1 per text."""
    idf = Terms.idf.col.fill_null(model.unknown_idf)
    length = (idf**2).sum().over(Terms.row.name).sqrt()
    return (
        _texts_by_term(texts)
        .join(model.table.lazy(), on=Terms.term.name, how="left")
        .explode(Terms.row.name, empty_as_null=False)
        .with_columns(pl.col(*map(str, CLASSES)) * idf / length)
        .drop_nulls()
        .pipe(run_query)
    )
