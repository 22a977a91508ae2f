"""Fit what the verdict is decided with, on labelled calls, and print how good it is on others.

    python -m tests.benchmarks.calibrate [--check]

Reads the labelled files in tests/verdict and tests/truth, and the recordings of their calls, some
of which are in the folder that `MCPTALLY_CORPUS` names (`traffic.py`). Writes two files beside the
rules, one beside the tests, and the figures of a page:

    measured.json    `hits` and `right` of every rule
    weights.json     the weights of the features (`verdict.weighing`)
    rule_counts.csv  what each rule does on the labelled calls (`rule_counts`)
    docs/explanation/verdict.md  how good the verdict is, below the headings of `main`

Every figure printed is cross-validated: a call is judged with weights that were fitted without
the calls of its server. Texts of some server families were read while rules were written, which
flatters these rules; such families count less. Which ones they are is decided by a hash of the
name, as it was then, and for our own labels by what the file says.
"""

import argparse
import dataclasses
import functools
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

try:
    from scipy.optimize import minimize_scalar
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from threadpoolctl import threadpool_limits
except ModuleNotFoundError:
    sys.exit("scikit-learn is not installed; it fits the weights: pip install 'mcptally[dev]'")

from mcptally import rules as rule_files
from mcptally.evaluation import (
    Evaluation,
    calibration,
    evaluate_rows,
    hidden_rows,
    judged,
    labels,
    recorded_calls,
    report,
)
from mcptally.verdict import classify, facts, hidden_errors, weighing
from tests.benchmarks import traffic

TESTS = Path(__file__).resolve().parents[1]
LABELS = TESTS / "verdict" / "labels"
TRAFFIC = traffic.folder()
SHARED_LABELS = (LABELS / "errors.jsonl", LABELS / "traffic.jsonl")
OUR_LABELS = tuple(
    TESTS / "verdict" / name for name in ("held_out.jsonl", "recorded.jsonl", "natural.jsonl")
)
INJECTED_FAULTS = TESTS / "truth" / "labels.jsonl"
RECORDINGS = {
    LABELS / "traffic.jsonl": TRAFFIC,
    OUR_LABELS[1]: TESTS / "verdict" / "recordings",
    OUR_LABELS[2]: TESTS / "verdict" / "natural_recordings",
    INJECTED_FAULTS: TESTS / "truth" / "recordings",
}
"""Labelled file → the recordings of its calls."""
FAULTY = (OUR_LABELS[1].name, INJECTED_FAULTS.name)
"""Labelled files whose servers or backends were made to fail. Confidence is calibrated on the
others: it is the share of right verdicts among calls of servers as their users run them."""
RULES = Path(rule_files.__file__).parent
MEASURED = RULES / "measured.json"
WEIGHTS = RULES / "weights.json"
COUNTS = TESTS / "verdict" / "rule_counts.csv"
PAGE = TESTS.parent / "docs" / "explanation" / "verdict.md"
READ_WEIGHT = 0.2
"""Weight of a read family in the measured counts of rules."""
READ_WEIGHT_IN_FIT = 0.5
UNKNOWN_TEXT_WEIGHT = 0.15
"""Weight of a labelled call without the first rule about its text, relative to the call itself."""
FOLDS = 10
INNER_FOLDS = 5
"""Folds within the calls of a fit, on which its penalty and temperature are chosen."""
PENALTIES = (0.1, 0.3, 1.0)
"""Candidates for `C` of the regression, the inverse of the strength of the penalty on large
weights."""
MAX_TEMPERATURE = 3.0
"""The temperature is at most this and at least its inverse."""
CONTEXT_EXAMPLE_WEIGHT = 10.0
TEXT_EXAMPLE_WEIGHT = 1.0
"""Weights of the examples of one rule together, where a labelled call has 1 on average and the
penalty is 1. Like the penalty, they count more where labelled calls count less."""


@functools.cache
def ours() -> dict[str, bool]:
    """Families of our own labels, and whether rules were changed after their mistakes were read."""
    files = (*OUR_LABELS, INJECTED_FAULTS)
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    known = {labels.family(row["server"]): row["part"] == "read" for row in map(json.loads, lines)}
    shared = set(pl.concat(labels.read(file) for file in SHARED_LABELS)["family"])
    return {family: read for family, read in known.items() if family not in shared}


def was_read(family: str) -> bool:
    """Whether this family's labelled texts were looked at while the rules were written."""
    known = ours().get(family)
    if known is not None:
        return known
    return any(
        hashlib.md5((salt + family).encode(), usedforsecurity=False).digest()[0] % 2 == 0
        for salt in ("a1", "q7")
    )


def labelled() -> pl.DataFrame:
    """All labelled calls; those of recorded traffic with the evidence of their archive."""
    frames = []
    for file in (*SHARED_LABELS, *OUR_LABELS, INJECTED_FAULTS):
        rows = labels.read(file)
        if archive := RECORDINGS.get(file):
            rows = labels.with_traffic(rows, recorded_calls(archive, rows))
        frames.append(rows.with_columns(file=pl.lit(file.name)))
    return pl.concat(frames, how="diagonal")


def weighted(decided: pl.DataFrame) -> pl.DataFrame:
    weight = pl.when(pl.col("family").map_elements(was_read, return_dtype=pl.Boolean))
    return calibration.counts(decided).with_columns(
        pl.col("hits", "right") * weight.then(READ_WEIGHT).otherwise(1.0)
    )


def verdict_counts(decided: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Rule id → (hits, right) of the rule that names the verdict."""
    return calibration.total(weighted(decided.filter(pl.col("label").is_not_null())))


def hidden_counts(rows: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Rule id → (hits, right) of the rule that decides whether a result hides an error."""
    found = hidden_rows(rows)
    silent = [rule.id for rule in hidden_errors.hidden_error_rules() if not rule.failure]
    is_right = pl.col("is_hidden") != pl.col("rule").is_in(silent)
    return calibration.total(weighted(found.with_columns(correct=is_right)))


def as_json(counted: dict[str, tuple[float, float]]) -> str:
    """The text of measured.json: one line per rule that decided on a labelled call."""
    lines = [
        f'  "{name}": {{"hits": {hits:.4g}, "right": {right:.4g}}}'
        for name, (hits, right) in sorted(counted.items())
        if hits
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@functools.cache
def examples() -> tuple[weighing.Features, npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Features, classes and weights of the examples of rules.

    Few labelled calls show an outage, arguments that violate their schema, a code, or a language
    that no rule understands, and no call at all some tiers: without examples, such rules would have
    no weight. Rules about the archive and stderr have none: alone, such facts decide nothing.
    """
    rows = [
        {
            "outcome": "tool_error",
            "verdict": rule.verdict,
            "weight": (
                CONTEXT_EXAMPLE_WEIGHT if weighing.tier(rule) is None else TEXT_EXAMPLE_WEIGHT
            )
            / len(rule.fires),
        }
        | ({"error_text": example} if isinstance(example, str) else example)
        for rule in classify.failure_rules()
        if not rule.decides and not rule.id.startswith(("verdict.archive.", "verdict.stderr."))
        for example in rule.fires
    ]
    schema = {"verdict": pl.String, "weight": pl.Float64, **facts.Inputs.schema()}
    frame = pl.DataFrame(rows, schema=schema)
    _, features = classify.features(classify.judge(frame)["evidence"])
    classes = np.array([weighing.CLASSES.index(name) for name in frame["verdict"]])
    return features, classes, frame["weight"].to_numpy()


def without_first_rule(evidence: pl.Series) -> pl.Series:
    """Return the lists of rule ids without the first rule about the text.

    Null where there is none, or where it is about the form of one library: other libraries have
    other forms.
    """
    tiers = {rule.id: weighing.tier(rule) for rule in classify.failure_rules()}
    lists: list[list[str] | None] = []
    for ids in evidence.to_list():
        first = next((each for each in ids or () if tiers[each] is not None), None)
        known = first is None or tiers[first] == "form"
        lists.append(None if known else [each for each in ids if each != first])
    return pl.Series(lists, dtype=pl.List(pl.String))


class Sample:
    """Labelled calls as features, classes and weights."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """Use the calls that have a class."""
        self.rows = judged(rows.filter(pl.col("label").is_not_null() | pl.col("is_ambiguous")))
        evidence = self.rows["evidence"]
        self.names, self.features = classify.features(evidence)
        fewer = without_first_rule(evidence)
        self.has_fewer = fewer.is_not_null().to_numpy()
        _, self.features_of_fewer = classify.features(fewer)
        names = self.rows["label"].fill_null("ambiguous").to_list()
        self.classes = np.array([weighing.CLASSES.index(name) for name in names])
        self.families = self.rows["family"].to_list()
        self.is_usual = (~self.rows["file"].is_in(FAULTY)).to_numpy()
        read = {family: was_read(family) for family in set(self.families)}
        keys = pl.DataFrame({"family": self.families, "label": names})
        same = keys.select(pl.len().over("family", "label"))["len"].to_numpy()
        # Errors of the same server repeat each other.
        self.weights = same**-0.5 * np.where(
            [read[family] for family in self.families], READ_WEIGHT_IN_FIT, 1.0
        )
        # The frequency of the classes of injected faults was planned: take that of other labels.
        self.is_planned = (self.rows["file"] == INJECTED_FAULTS.name).to_numpy()
        planned, other = (self._shares(rows) for rows in (self.is_planned, ~self.is_planned))
        factors = np.divide(other, planned, out=np.zeros_like(other), where=planned > 0)
        self.weights[self.is_planned] *= factors[self.classes[self.is_planned]]
        self.weights /= self.weights.mean()

    def _shares(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the share of each class in the weight of the rows `chosen`."""
        count = np.bincount(self.classes[chosen], self.weights[chosen], len(weighing.CLASSES))
        shares: npt.NDArray[np.float64] = count / count.sum()
        return shares

    def fit(self, chosen: npt.NDArray[np.int64]) -> weighing.Weights:
        """Return the weights fitted on the rows `chosen` and on the examples of rules.

        The regression counts rare kinds of errors and unread servers more, and its penalty pulls
        all probabilities together. Dividing the weights by a temperature makes the probabilities
        those of a call picked at random. The penalty and the temperature are those that give the
        labels of servers left out of a fit the highest likelihood; servers that were made to fail
        have no part in this choice.
        """
        penalty, temperature = min(
            (self._temperature(chosen, penalty) for penalty in PENALTIES), key=lambda each: each[2]
        )[:2]
        by_class = self._regression(chosen, penalty) / temperature
        features = {
            name: tuple(column)
            for name, column in zip(self.names, by_class[:, 1:].T.round(3).tolist(), strict=True)
            if any(column)
        }
        return weighing.Weights(tuple(by_class[:, 0].round(3).tolist()), features)

    def _regression(self, chosen: npt.NDArray[np.int64], penalty: float) -> npt.NDArray[np.float64]:
        """Return the intercept and the weights of the features, one row per class.

        Each call counts a second time without the first rule about its text, as a call whose text
        no rule was written for.
        """
        features, classes, weights = examples()
        again = chosen[self.has_fewer[chosen]]
        model = LogisticRegression(C=penalty, max_iter=5000, tol=1e-6)
        model.fit(
            np.concatenate([self.features[chosen], self.features_of_fewer[again], features]),
            np.concatenate([self.classes[chosen], self.classes[again], classes]),
            sample_weight=np.concatenate(
                [self.weights[chosen], UNKNOWN_TEXT_WEIGHT * self.weights[again], weights / penalty]
            ),
        )
        # Of the equivalent solutions, the one whose weights add up to 0.
        by_class = np.zeros((len(weighing.CLASSES), len(self.names) + 1))
        by_class[model.classes_] = np.column_stack([model.intercept_, model.coef_])
        centered: npt.NDArray[np.float64] = by_class - by_class.mean(axis=0)
        return centered

    def _temperature(
        self, chosen: npt.NDArray[np.int64], penalty: float
    ) -> tuple[float, float, float]:
        """Return `penalty`, the best temperature for it, and their loss on servers left out.

        The loss is the mean negative logarithm of the probability of a call's class, over the calls
        of servers as their users run them.
        """
        scores = np.zeros((len(chosen), len(weighing.CLASSES)))
        usual = self.is_usual[chosen]
        families = [self.families[row] for row in chosen]
        folds = GroupKFold(INNER_FOLDS, shuffle=True, random_state=1)
        for others, own in folds.split(chosen, groups=families):
            by_class = self._regression(chosen[others], penalty)
            scores[own] = self.features[chosen[own]] @ by_class[:, 1:].T + by_class[:, 0]
        of_label = scores[np.arange(len(chosen)), self.classes[chosen]]

        def loss(temperature: float) -> float:
            total = np.logaddexp.reduce(scores / temperature, axis=1)
            return float((total - of_label / temperature)[usual].mean())

        bounds = (1 / MAX_TEMPERATURE, MAX_TEMPERATURE)
        best = minimize_scalar(loss, bounds=bounds, method="bounded")
        return penalty, float(best.x), float(best.fun)

    @functools.cached_property
    def folds(self) -> list[tuple[weighing.Weights, npt.NDArray[np.int64]]]:
        """Rows of some families, and weights that were fitted without these families."""
        folds = GroupKFold(FOLDS, shuffle=True, random_state=0)
        return [
            (self.fit(others), own)
            for others, own in folds.split(self.features, self.classes, self.families)
        ]

    def held_out(self) -> pl.DataFrame:
        """The calls, judged with weights that were fitted without their families."""
        return pl.concat(self.judged_with(weights, own) for weights, own in self.folds)

    def judged_with(
        self, weights: weighing.Weights, chosen: npt.NDArray[np.int64] | None = None
    ) -> pl.DataFrame:
        """The rows `chosen`, or all, with verdicts by these weights, and `correct`."""
        rows = self.rows if chosen is None else self.rows[chosen]
        verdicts = classify.judge_evidence(rows["evidence"], weights)
        return (
            rows.drop(verdicts.columns)
            .hstack(verdicts)
            .with_columns(correct=(pl.col("label") == pl.col("verdict")).fill_null(value=False))
        )


def rule_counts(sample: Sample, held_out: pl.DataFrame) -> pl.DataFrame:
    """What each rule does on the labelled calls, one row per rule, the file's columns.

    `matches`: calls that it matches, of so many `families`. `decides`: calls whose verdict it
    names. `needed`: how many more calls get the right verdict with the rule than without it, with
    weights that were fitted on calls of other servers.
    """
    evidence, labels_ = sample.rows["evidence"], sample.rows["label"]
    right = np.zeros(len(evidence), dtype=np.bool_)
    right[np.concatenate([own for _, own in sample.folds])] = held_out["correct"].to_numpy()
    rows = []
    for rule in classify.failure_rules():
        matches = evidence.list.contains(rule.id).fill_null(value=False).to_numpy()
        without = np.zeros(len(evidence), dtype=np.bool_)
        for weights, own in sample.folds:
            some = pl.Series(own[matches[own]])
            left = evidence.gather(some).list.set_difference([rule.id])
            verdict = classify.judge_evidence(left, weights)["verdict"]
            without[some] = (verdict == labels_.gather(some)).fill_null(value=False).to_numpy()
        rows.append(
            {
                "rule": rule.id,
                "verdict": rule.verdict,
                "matches": int(matches.sum()),
                "families": sample.rows.filter(pl.Series(matches))["family"].n_unique(),
                "decides": int((held_out["rule"] == rule.id).sum()),
                "needed": int(right[matches].sum()) - int(without[matches].sum()),
            }
        )
    return pl.DataFrame(rows).sort("rule")


def is_hard(held_out: pl.DataFrame) -> pl.Series:
    """Whether each text lacks the form in which a validator or an SDK rejects a call."""
    forms = [
        rule.id
        for rule in classify.failure_rules()
        if weighing.tier(rule) == "form" and rule.verdict == "business"
    ]
    ids = held_out["evidence"].list.set_intersection(forms)
    return (ids.list.len() == 0).fill_null(value=True)


def weights_as_json(weights: weighing.Weights) -> str:
    """The text of weights.json: one line per feature, the numbers in the order of the classes."""
    lines = [f'    "{name}": {list(values)}' for name, values in weights.features.items()]
    return (
        f'{{\n  "classes": {json.dumps(list(weighing.CLASSES))},\n'
        f'  "intercept": {list(weights.intercept)},\n'
        '  "features": {\n' + ",\n".join(lines) + "\n  }\n}\n"
    )


def with_figures(page: str, sections: dict[str, Evaluation]) -> str:
    """Return `page` with these figures below the headings of the sections, without lists."""
    for title, evaluation in sections.items():
        assert evaluation.verdict is not None
        quality = dataclasses.replace(evaluation.verdict, changing_tools=[], rules=[])
        text = report.as_text(dataclasses.replace(evaluation, verdict=quality))
        heading, before, rest = page.partition(f"### {title}\n\n")
        _, after, others = rest.partition("\n##")
        assert before, title
        page = heading + before + text.removeprefix("## Verdict\n\n") + after + others
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if out of date")
    check = parser.parse_args().check
    if TRAFFIC is None:
        sys.exit(f"set {traffic.SETTING} to the folder of the recordings of labels/traffic.jsonl")
    # Threads cost ten times the CPU time on matrices of this size.
    threadpool_limits(1)
    rows = labelled()
    sample = Sample(rows)
    held_out = sample.held_out()
    unread = ~pl.col("family").map_elements(was_read, return_dtype=pl.Boolean)
    recorded = pl.col("file") == OUR_LABELS[1].name
    injected = pl.col("file") == INJECTED_FAULTS.name
    usual = held_out.filter(unread & ~recorded & ~injected)
    hard = usual.filter(is_hard(usual))
    faulty, ours_faulty = (held_out.filter(unread & some) for some in (recorded, injected))
    sections = {
        title: evaluate_rows(some)
        for title, some in (
            ("Servers whose texts were not read while rules were written", usual),
            ("The same servers, texts that no validator or SDK wrote", hard),
            ("Other servers whose texts were not read, with faulty backends", faulty),
            ("Our servers whose texts were not read, with injected faults", ours_faulty),
            ("All servers", held_out),
        )
    }
    for title, evaluation in sections.items():
        print(f"# Cross-validated by server: {title}\n")
        print(report.as_text(evaluation))
    weights = sample.fit(np.arange(len(sample.classes)))
    files = {
        WEIGHTS: weights_as_json(weights),
        MEASURED: as_json(verdict_counts(sample.judged_with(weights)) | hidden_counts(rows)),
        COUNTS: rule_counts(sample, held_out).write_csv(),
        PAGE: with_figures(PAGE.read_text(encoding="utf-8"), sections),
    }
    stale = [
        file
        for file, text in files.items()
        if not file.exists() or text != file.read_text(encoding="utf-8")
    ]
    for file in stale:
        if not check:
            file.write_text(files[file], encoding="utf-8")
    print("changed:", ", ".join(file.name for file in stale) or "nothing")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
