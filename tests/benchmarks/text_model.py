"""Fits the text model (`verdict.text_model`) on labelled texts, for `calibrate`."""

import functools
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from mcptally import rules as rule_files
from mcptally.verdict import classify, facts, text_model, weighing

PATH = Path(rule_files.__file__).with_name(text_model.FILE)
WEIGHT = 0.5
"""Weight of the model's log probabilities beside those of the rules."""
PENALTY = 20.0
"""`C` of the regression."""
MIN_TEXTS = 2
"""Minimum number of labelled texts that contain a term."""
SMALLEST_WEIGHT = 0.05
"""A term whose weights are all smaller is left out, and so is a single letter from a to z."""


@functools.cache
def examples() -> pl.DataFrame:
    """The masked `text` and the `label` of the examples of rules that name a cause.

    Few labelled texts are in languages other than English, or of the products that rules name.
    """
    rows = [
        {"label": text_model.CLASSES.index(rule.verdict), "outcome": "tool_error"}
        | ({"error_text": example} if isinstance(example, str) else example)
        for rule in classify.failure_rules()
        if rule.verdict in text_model.CLASSES and weighing.tier(rule) is not None
        for example in rule.fires
    ]
    schema = {"label": pl.Int64, **facts.Inputs.schema()}
    frame = pl.DataFrame(rows, schema=schema)
    return frame.select(text=facts.masked_texts(facts.texts_of(frame)), label="label")


def fit(texts: pl.Series, classes: npt.NDArray[np.int64]) -> text_model.TextModel:
    """Fit the model on these texts and on the examples of rules.

    Args:
        texts: masked texts.
        classes: their numbers in `text_model.CLASSES`.
    """
    labelled = pl.DataFrame({"text": texts, "label": classes})
    known = pl.concat([labelled, examples()]).unique(maintain_order=True)
    found = text_model.terms(known["text"])
    counts = found.group_by("term").len().filter(pl.col("len") >= MIN_TEXTS).sort("term")
    idf = np.log((1 + known.height) / (1 + counts["len"].to_numpy())) + 1
    unknown = np.log((1 + known.height) / 2) + 1
    sizes = found.group_by("row").len()
    squares = np.zeros(known.height)
    squares[sizes["row"].to_numpy()] = sizes["len"].to_numpy() * unknown**2
    found = found.join(counts.select("term").with_row_index("column"), on="term")
    rows, columns = found["row"].to_numpy(), found["column"].to_numpy()
    values = sparse.csr_matrix((idf[columns], (rows, columns)), shape=(known.height, counts.height))
    np.add.at(squares, rows, idf[columns] ** 2 - unknown**2)
    length = np.sqrt(squares)
    values = sparse.diags(1 / np.maximum(length, 1e-9)) @ values
    model = LogisticRegression(C=PENALTY, max_iter=300, tol=1e-3, class_weight="balanced")
    model.fit(values, known["label"].to_numpy())
    weights = (model.coef_ - model.coef_.mean(axis=0)).round(2)
    kept = np.abs(weights).max(axis=0) >= SMALLEST_WEIGHT
    kept &= ~counts["term"].str.contains("^[a-z]$").to_numpy()
    return text_model.TextModel(
        pooled=(WEIGHT, 1.0, 1.0),
        intercept=tuple((model.intercept_ - model.intercept_.mean()).round(2).tolist()),
        terms=tuple(counts["term"].filter(pl.Series(kept)).to_list()),
        idf=tuple(idf[kept].round(2).tolist()),
        unknown_idf=round(float(unknown), 2),
        weights=tuple(tuple(row) for row in weights[:, kept].tolist()),
    )


def as_json(model: text_model.TextModel) -> str:
    """The text of rules/text_model.json: one line per member."""
    lines = (
        f'"{name}": {json.dumps(getattr(model, name), ensure_ascii=False)}'
        for name in model.__struct_fields__
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"
