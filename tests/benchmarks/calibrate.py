"""Fit the weights of the verdict on labelled calls, and print its accuracy on other calls.

    python -m tests.benchmarks.calibrate [--check | --sealed]

Reads the labelled files in tests/verdict and tests/truth, and the recordings of their calls, some
of which are in the folder that `MCPTALLY_CORPUS` names (`traffic.py`). Writes three files beside
the rules, one beside the tests, and the figures of a page:

    measured.json    `hits` and `right` of every rule
    weights.json     the weights of the features (`verdict.weighing`)
    text_model.json  the text model, and how it is pooled with the rules
    rule_counts.csv  each rule's results on the labelled calls (`rule_counts`)
    docs/reference/accuracy.md  all figures, but those of sealed servers

Every figure printed is cross-validated: a call is judged with weights that were fitted without the
calls to its server. Texts of some server families were read while rules were written, which
overstates the accuracy of these rules, so these families count less. A hash of the name decides
which families were read; for our own labels, the file says it.
"""

import argparse
import dataclasses
import functools
import hashlib
import json
import sys
from pathlib import Path

import msgspec
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
    evaluate_rows,
    hidden_rows,
    judged,
    labels,
    recorded_calls,
    report,
)
from mcptally.verdict import classify, facts, hidden_errors, weighing
from mcptally.verdict.text_model import CLASSES as CAUSES
from mcptally.verdict.text_model import Opinions, TextModel, opinions
from tests.benchmarks import text_model, traffic

TESTS = Path(__file__).resolve().parents[1]
LABELS = TESTS / "verdict" / "labels"
TRAFFIC = traffic.folder()
SHARED_LABELS = (LABELS / "errors.jsonl", LABELS / "traffic.jsonl")
OUR_LABELS = tuple(
    TESTS / "verdict" / name
    for name in (
        *("held_out.jsonl", "recorded.jsonl", "natural.jsonl", "repeated.jsonl"),
        *("fresh.jsonl", "fresh_faulty.jsonl", "fresh2.jsonl", "fresh2_faulty.jsonl"),
    )
)
INJECTED_FAULTS = TESTS / "truth" / "labels.jsonl"
RECORDINGS = {
    LABELS / "traffic.jsonl": TRAFFIC,
    OUR_LABELS[1]: TESTS / "verdict" / "recordings",
    OUR_LABELS[2]: TESTS / "verdict" / "natural_recordings",
    OUR_LABELS[3]: TESTS / "verdict" / "repeated_recordings",
    INJECTED_FAULTS: TESTS / "truth" / "recordings",
}
"""Labelled file → the recordings of its calls."""
FAULTY = (*(OUR_LABELS[n].name for n in (1, 5, 7)), INJECTED_FAULTS.name)
"""Labelled files whose servers or backends were made to fail. Certainty is calibrated on the other
files: it is the share of right verdicts on calls to servers as their users run them."""
SEALED = "sealed"
"""The `part` of labelled servers that neither the fit nor the figures use: they are scored once,
when work on the verdict ends."""
RULES = Path(rule_files.__file__).parent
MEASURED = RULES / "measured.json"
WEIGHTS = RULES / "weights.json"
TEXT_MODEL = RULES / "text_model.json"
COUNTS = TESTS / "verdict" / "rule_counts.csv"
PAGE = TESTS.parent / "docs" / "reference" / "accuracy.md"
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
    """Return whether this family's labelled texts were read while the rules were written."""
    known = ours().get(family)
    if known is not None:
        return known
    return any(
        hashlib.md5((salt + family).encode(), usedforsecurity=False).digest()[0] % 2 == 0
        for salt in ("a1", "q7")
    )


def labelled(*, sealed: bool = False) -> pl.DataFrame:
    """Return all labelled calls; calls from recorded traffic have the evidence of their archive.

    Args:
        sealed: whether to return the calls to sealed servers, in place of the others.
    """
    frames = []
    for file in (*SHARED_LABELS, *OUR_LABELS, INJECTED_FAULTS):
        lines = file.read_text(encoding="utf-8").splitlines()
        parts = [json.loads(line).get("part") for line in lines]
        chosen = [n for n, part in enumerate(parts, start=1) if (part == SEALED) == sealed]
        rows = labels.read(file).filter(pl.col("line").is_in(chosen))
        if rows.is_empty():
            continue
        if archive := RECORDINGS.get(file):
            rows = labels.with_traffic(rows, recorded_calls(archive, rows))
        frames.append(rows.with_columns(file=pl.lit(file.name)))
    return pl.concat(frames, how="diagonal")


PER_FAMILY = 1.0
"""The maximum number of hits that one server family adds to a rule, because 50 identical messages
from one server are not 50 independent observations. Limits of 1, 3 and none, with prior weights
from 2 to 25, were tried on families that were not used to write the rules; 1 with a strong prior
gave the best calibration."""


def counts(decided: pl.DataFrame) -> pl.DataFrame:
    """One row per rule and family with `hits` and `right`, scaled to at most `PER_FAMILY` hits.

    Args:
        decided: one row per labelled call with `rule`, `family` and `correct`.
    """
    weight = pl.min_horizontal(pl.len().cast(pl.Float64), pl.lit(PER_FAMILY))
    return (
        decided.drop_nulls("rule")
        .group_by("rule", "family")
        .agg(hits=weight, right=weight * pl.col("correct").mean())
        .sort("rule", "family")
    )


def total(by_family: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Rule id → (hits, right): the result of `counts`, summed over families."""
    summed = by_family.group_by("rule").agg(pl.sum("hits", "right"))
    return {rule: (hits, right) for rule, hits, right in summed.iter_rows()}


def weighted(decided: pl.DataFrame) -> pl.DataFrame:
    weight = pl.when(pl.col("family").map_elements(was_read, return_dtype=pl.Boolean))
    return counts(decided).with_columns(
        pl.col("hits", "right") * weight.then(READ_WEIGHT).otherwise(1.0)
    )


def verdict_counts(decided: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Rule id → (hits, right) of the rule that names the verdict."""
    return total(weighted(decided.filter(pl.col("label").is_not_null())))


def hidden_counts(rows: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Rule id → (hits, right) of the rule that decides whether a result hides an error."""
    found = hidden_rows(rows)
    silent = [rule.id for rule in hidden_errors.hidden_error_rules() if not rule.failure]
    is_right = pl.col("is_hidden") != pl.col("rule").is_in(silent)
    return total(weighted(found.with_columns(correct=is_right)))


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


@dataclasses.dataclass(frozen=True)
class Fold:
    """Labelled calls, and models that were fitted without their servers."""

    rows: npt.NDArray[np.int64]
    weights: weighing.Weights
    opinions: Opinions
    """Of the text model on these rows."""


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
        order = {weighing.CLASSES.index(each): n for n, each in enumerate(CAUSES)}
        self.causes = np.array([order.get(int(each), -1) for each in self.classes])
        self.texts = facts.masked_texts(facts.texts_of(self.rows.with_columns(error_text="text")))
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

    def fit_text_model(self, chosen: npt.NDArray[np.int64]) -> TextModel:
        """Return the text model fitted on the rows `chosen` and on the examples of rules."""
        learnt = chosen[self.causes[chosen] >= 0]
        return text_model.fit(self.texts.gather(learnt), self.causes[learnt])

    @functools.cached_property
    def folds(self) -> list["Fold"]:
        """The rows of some families, and models that were fitted without these families."""
        folds = GroupKFold(FOLDS, shuffle=True, random_state=0)
        return [
            Fold(
                own,
                self.fit(others),
                opinions(self.texts.gather(own), self.fit_text_model(others)),
            )
            for others, own in folds.split(self.features, self.classes, self.families)
        ]

    @functools.cached_property
    def pooled(self) -> tuple[float, float, float]:
        """`TextModel.pooled`: temperatures with the highest likelihood of labels left out.

        One for calls on which the rules and the text model agree, one for the others. Servers that
        were made to fail have no part in this choice.
        """
        rules = np.zeros((len(self.classes), len(weighing.CLASSES)))
        by_text = np.zeros((len(self.classes), len(CAUSES)))
        for fold in self.folds:
            rules[fold.rows] = weighing.probabilities(
                self.features[fold.rows], self.names, fold.weights
            )
            by_text[fold.rows] = fold.opinions
        columns = [weighing.CLASSES.index(each) for each in CAUSES]
        agree = rules[:, columns].argmax(axis=1) == by_text.argmax(axis=1)
        alone = weighing.is_alone(self.features, self.names, classify.failure_rules())
        found = [text_model.WEIGHT]
        for some in (agree, ~agree):
            rows = np.flatnonzero(some & self.is_usual & (self.causes >= 0))

            def loss(temperature: float, rows: npt.NDArray[np.int64] = rows) -> float:
                how = (text_model.WEIGHT, temperature, temperature)
                both = weighing.pooled(rules[rows], by_text[rows], how, alone[rows])[:, columns]
                of_label = both[np.arange(len(rows)), self.causes[rows]] / both.sum(axis=1)
                return float(-(self.weights[rows] * np.log(np.maximum(of_label, 1e-9))).sum())

            found.append(float(minimize_scalar(loss, bounds=(0.3, 6.0), method="bounded").x))
        weight, agreed, disagreed = (round(each, 2) for each in found)
        return weight, agreed, disagreed

    def held_out(self) -> pl.DataFrame:
        """Return the calls, judged with models that were fitted without their families."""
        return pl.concat(
            self.judged_with(fold.weights, fold.opinions, fold.rows) for fold in self.folds
        )

    def judged_with(
        self,
        weights: weighing.Weights,
        by_text: Opinions,
        chosen: npt.NDArray[np.int64] | None = None,
    ) -> pl.DataFrame:
        """The rows `chosen`, or all, with verdicts by these models, and `correct`."""
        rows = self.rows if chosen is None else self.rows[chosen]
        verdicts = classify.judge_evidence(
            rows["evidence"], weights, opinions=(by_text, self.pooled)
        )
        return (
            rows.drop(verdicts.columns)
            .hstack(verdicts)
            .with_columns(correct=(pl.col("label") == pl.col("verdict")).fill_null(value=False))
        )


def rule_counts(sample: Sample, held_out: pl.DataFrame) -> pl.DataFrame:
    """Return each rule's results on the labelled calls: one row per rule, with the file's columns.

    `matches` counts the calls that the rule matches, `families` their server families, and
    `decides` the calls whose reason it gives. `needed` is how many more calls get the right verdict
    with the rule than without it, with weights that were fitted on calls to other servers.
    """
    evidence, labels_ = sample.rows["evidence"], sample.rows["label"]
    right = np.zeros(len(evidence), dtype=np.bool_)
    right[np.concatenate([fold.rows for fold in sample.folds])] = held_out["correct"].to_numpy()
    rows = []
    for rule in classify.failure_rules():
        matches = evidence.list.contains(rule.id).fill_null(value=False).to_numpy()
        without = np.zeros(len(evidence), dtype=np.bool_)
        for fold in sample.folds:
            own = matches[fold.rows]
            some = pl.Series(fold.rows[own])
            left = evidence.gather(some).list.set_difference([rule.id])
            by_text = (fold.opinions[own], sample.pooled)
            verdict = classify.judge_evidence(left, fold.weights, opinions=by_text)["verdict"]
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


def with_figures(page: str, sections: dict[str, str]) -> str:
    """Return `page` with these texts below the headings of the sections."""
    for title, text in sections.items():
        heading, before, rest = page.partition(f"## {title}\n\n")
        _, after, others = f"\n{rest}".partition("\n## ")
        assert before, title
        page = heading + before + text.strip() + "\n" + after + others
    return page


def details(evaluation: Evaluation) -> str:
    """The figures of one set in full, without lists of tools and rules."""
    assert evaluation.verdict is not None
    quality = dataclasses.replace(evaluation.verdict, changing_tools=[], rules=[])
    return report.as_text(dataclasses.replace(evaluation, verdict=quality)).removeprefix(
        "## Verdict\n\n"
    )


def together(sets: dict[str, pl.DataFrame], hidden: dict[str, pl.DataFrame]) -> str:
    """One row per set: all measures side by side."""
    head = (
        *("set", "errors", *report.WEIGHTINGS.values(), "claims of 95 % and more"),
        *('"tool" right', "tool failures found", "cause of hidden errors"),
        *("hidden errors: precision", "recall"),
    )
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for title, rows in sets.items():
        quality = evaluate_rows(rows).verdict
        assert quality is not None
        by = {each.weighting: each for each in quality.weighted}
        cells = [title, f"{quality.n:,}"]
        cells += [
            report.share(by[name].accuracy) if name in by else "-" for name in report.WEIGHTINGS
        ]
        text = by["text"]
        cells += map(report.share, (text.sure, text.tool_precision, text.tool_recall))
        cells += [report.share(quality.hidden_causes.value)]
        found = hidden.get(title)
        if found is None:
            cells += ["", ""]
        else:
            right = int((found["is_hidden"] & found["hidden_error"]).sum())
            cells += [
                report.share(right / int(found[name].sum()))
                for name in ("hidden_error", "is_hidden")
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sealed_figures(rows: pl.DataFrame) -> Evaluation:
    """Return the figures for sealed servers with the shipped models, fitted without them."""
    decided = judged(rows.filter(pl.col("label").is_not_null())).with_columns(
        correct=pl.col("label") == pl.col("verdict")
    )
    found = hidden_rows(rows)
    print(found.group_by("is_hidden", "hidden_error").len())
    return evaluate_rows(decided)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if out of date")
    parser.add_argument("--sealed", action="store_true", help="score the sealed servers, once")
    given = parser.parse_args()
    if TRAFFIC is None:
        sys.exit(f"set {traffic.SETTING} to the folder of the recordings of labels/traffic.jsonl")
    # Threads cost ten times the CPU time on matrices of this size.
    threadpool_limits(1)
    if given.sealed:
        for file, some in labelled(sealed=True).group_by("file", maintain_order=True):
            print(file[0])
            print(report.as_text(sealed_figures(some)))
        return
    rows = labelled()
    sample = Sample(rows)
    held_out = sample.held_out()
    unread = ~pl.col("family").map_elements(was_read, return_dtype=pl.Boolean)
    found = hidden_rows(rows)
    key = ["file", "line"]
    missed = found.filter(pl.col("is_hidden") & ~pl.col("hidden_error")).select(key)
    repeated = pl.col("file") == OUR_LABELS[3].name
    fresh = {
        "fresh, read": OUR_LABELS[4],
        "fresh with faulty backends, read": OUR_LABELS[5],
        "second fresh set, read": OUR_LABELS[6],
        "second fresh set with faulty backends, read": OUR_LABELS[7],
    }
    of_file = {
        "as users run them, unread": ~pl.col("file").is_in(FAULTY),
        "faulty backends, unread": pl.col("file") == OUR_LABELS[1].name,
        "injected faults, unread": pl.col("file") == INJECTED_FAULTS.name,
    }
    usual, faulty, injected = (held_out.filter(unread & some) for some in of_file.values())
    hard = usual.filter(is_hard(usual))
    wrong = hard.join(missed, on=key, how="semi").with_columns(correct=pl.lit(value=False))
    sets = {
        "as users run them, unread": usual,
        "of them, texts that no validator wrote": hard,
        "the same, missed hidden errors count as wrong": pl.concat(
            [hard.join(missed, on=key, how="anti"), wrong]
        ),
        "faulty backends, unread": faulty,
        "injected faults, unread": injected,
        "calls repeated, read": held_out.filter(repeated & ~unread),
        **{name: held_out.filter(pl.col("file") == file.name) for name, file in fresh.items()},
        "all, read and unread": held_out,
    }
    hidden = {name: found.filter(unread & some) for name, some in of_file.items()}
    hidden["calls repeated, read"] = found.filter(repeated & ~unread)
    hidden |= {name: found.filter(pl.col("file") == file.name) for name, file in fresh.items()}
    hidden["all, read and unread"] = found
    sections = {
        "All figures together": together(sets, hidden),
        "Servers as users run them, unread": details(evaluate_rows(usual)),
        "Servers with faulty backends, unread": details(evaluate_rows(faulty)),
        "Our servers with injected faults, unread": details(evaluate_rows(injected)),
    }
    print(sections["All figures together"])
    every = np.arange(len(sample.classes))
    weights, model = sample.fit(every), sample.fit_text_model(every)
    decided = sample.judged_with(weights, opinions(sample.texts, model))
    files = {
        WEIGHTS: weights_as_json(weights),
        TEXT_MODEL: text_model.as_json(msgspec.structs.replace(model, pooled=sample.pooled)),
        MEASURED: as_json(verdict_counts(decided) | hidden_counts(rows)),
        COUNTS: rule_counts(sample, held_out).write_csv(),
        PAGE: with_figures(PAGE.read_text(encoding="utf-8"), sections),
    }
    stale = [
        file
        for file, text in files.items()
        if not file.exists() or text != file.read_text(encoding="utf-8")
    ]
    for file in stale:
        if not given.check:
            file.write_text(files[file], encoding="utf-8")
    print("changed:", ", ".join(file.name for file in stale) or "nothing")
    sys.exit(1 if given.check and stale else 0)


if __name__ == "__main__":
    main()
