"""Fit the text model (`verdict.text_model`) on labelled calls, and print what it adds to the rules.

    python -m tests.benchmarks.text_model

Writes rules/text_model.json. A call is judged with a model and weights of rules that were fitted
without the calls of its server. The weight beside the rules was chosen by the likelihood of the
labels of servers whose texts were read, and only these are printed. The temperatures are those that
give the labels of servers left out of a fit the highest likelihood, on servers as users run them.
"""

import argparse
import functools
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_limits

from mcptally import rules as rule_files
from mcptally.verdict import classify, facts, text_model, weighing
from tests.benchmarks import calibrate

PATH = Path(rule_files.__file__).with_name(text_model.FILE)
WEIGHT = 0.5
"""Weight of the model's log probabilities beside those of the rules."""
PENALTY = 20.0
"""`C` of the regression."""
RULE_PENALTY = 0.3
FOLDS = 6
MIN_TEXTS = 2
"""Labelled texts that a term must be in."""
SMALLEST_WEIGHT = 0.05
"""A term whose weights are all smaller is left out."""


def labelled_texts(sample: calibrate.Sample) -> pl.Series:
    """What the model reads of each labelled call."""
    return facts.masked_texts(sample.rows.with_columns(error_text="text"))


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
    return frame.select(text=facts.masked_texts(frame), label="label")


def fit(texts: pl.Series, classes: npt.NDArray[np.int64]) -> text_model.TextModel:
    """The model of these texts and of the examples of rules.

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
    return text_model.TextModel(
        pooled=(WEIGHT, 1.0, 1.0),
        intercept=tuple((model.intercept_ - model.intercept_.mean()).round(2).tolist()),
        terms=tuple(counts["term"].filter(pl.Series(kept)).to_list()),
        idf=tuple(idf[kept].round(2).tolist()),
        unknown_idf=round(float(unknown), 2),
        weights=tuple(tuple(row) for row in weights[:, kept].tolist()),
    )


def classes_of(sample: calibrate.Sample) -> npt.NDArray[np.int64]:
    """The class of each call in `text_model.CLASSES`; -1 for `ambiguous`."""
    order = {weighing.CLASSES.index(each): n for n, each in enumerate(text_model.CLASSES)}
    return np.array([order.get(int(each), -1) for each in sample.classes])


def held_out(
    sample: calibrate.Sample, texts: pl.Series
) -> tuple[npt.NDArray[np.float64], text_model.Opinions]:
    """Scores of the rules and opinions of the model, fitted without the server of each call."""
    classes = classes_of(sample)
    scores = np.zeros((len(texts), len(weighing.CLASSES)))
    opinions = np.zeros((len(texts), len(text_model.CLASSES)))
    folds = GroupKFold(FOLDS, shuffle=True, random_state=0)
    for others, own in folds.split(scores, groups=sample.families):
        by_class = sample._regression(others, RULE_PENALTY)
        scores[own] = sample.features[own] @ by_class[:, 1:].T + by_class[:, 0]
        learnt = others[classes[others] >= 0]
        model = fit(texts.gather(learnt), classes[learnt])
        opinions[own] = text_model.opinions(texts.gather(own), model)
    return scores, opinions


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    threadpool_limits(1)
    sample = calibrate.Sample(calibrate.labelled())
    texts, classes = labelled_texts(sample), classes_of(sample)
    scores, opinions = held_out(sample, texts)
    usual = sample.is_usual & (classes >= 0)
    target = sample.classes

    def loss(probability: npt.NDArray[np.float64], some: npt.NDArray[np.bool_]) -> float:
        of_label = probability[some, target[some]] / (1 - probability[some, AMBIGUOUS])
        return float(-(sample.weights[some] * np.log(np.maximum(of_label, 1e-9))).sum())

    def softmax(temperature: float) -> npt.NDArray[np.float64]:
        each = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
        return each / each.sum(axis=1, keepdims=True)

    def best(of: object) -> float:
        return float(minimize_scalar(of, bounds=(0.3, 6.0), method="bounded").x)

    rules = softmax(best(lambda each: loss(softmax(each), usual)))
    causes = [weighing.CLASSES.index(each) for each in text_model.CLASSES]
    agree = rules[:, causes].argmax(axis=1) == opinions.argmax(axis=1)
    pooled = [
        best(lambda t: loss(weighing.pooled(rules, opinions, (WEIGHT, t, t)), usual & some))  # noqa: B023
        for some in (agree, ~agree)
    ]
    how = (WEIGHT, *(round(each, 2) for each in pooled))
    both = weighing.pooled(rules, opinions, how)
    print(f"{how=}, they agree on {agree[usual].mean():.3f}")
    is_faulty = sample.rows["file"].is_in(calibrate.FAULTY).to_numpy()
    read = np.array([calibrate.was_read(family) for family in sample.families])
    hard = calibrate.is_hard(sample.rows).to_numpy()
    for name, some in (
        ("usual", usual),
        ("usual, no validator", usual & hard),
        ("made to fail, read", is_faulty & read & (classes >= 0)),
    ):
        print(f"{name}: {some.sum()}")
        for kind, each in (("rules", rules), ("pooled", both)):
            of_cause = each[:, causes] / each[:, causes].sum(axis=1, keepdims=True)
            right = (of_cause.argmax(axis=1) == classes)[some]
            sure = of_cause.max(axis=1)[some]
            high = sure >= 0.95
            print(
                f"  {kind}: right {right.mean():.3f}, mean certainty {sure.mean():.3f},"
                f" claims of 95 % and more {high.mean():.3f} of all, right {right[high].mean():.3f}"
            )
    known = classes >= 0
    model = fit(texts.filter(pl.Series(known)), classes[known])
    content = {
        "pooled": how,
        "intercept": model.intercept,
        "terms": model.terms,
        "idf": model.idf,
        "unknown_idf": model.unknown_idf,
        "weights": model.weights,
    }
    lines = (f'"{name}": {json.dumps(each, ensure_ascii=False)}' for name, each in content.items())
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{PATH}: {len(model.terms)} terms, {PATH.stat().st_size} bytes")


AMBIGUOUS = weighing.CLASSES.index("ambiguous")


if __name__ == "__main__":
    main()
