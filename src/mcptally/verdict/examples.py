"""Checks rules against their own examples: texts that must match, and texts that must not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from mcptally.errors import RuleError, near
from mcptally.verdict import classify, facts, hidden_errors
from mcptally.verdict.rule_model import HiddenRule, TextRule, VerdictRule

_USUAL_FORM: Final = "usual"
"""Key in the example of a hidden error; the value `json` means that the tool's other results are
JSON."""

_OTHER_RESULTS: Final = 19
"""Number of other results that the check adds to an example with the key `usual`."""

_SHOWN: Final = 200
"""Maximum number of characters of an example that an error message quotes."""

Example = tuple[str, Any]
"""`fires` or `silent`, and the text or table that the rule must, or must not, match."""


def examples(rule: TextRule) -> Iterator[Example]:
    """Yield the examples of a rule: those it must match, then those it must not."""
    for kind in ("fires", "silent"):
        for example in getattr(rule, kind):
            yield kind, example


def contradicted_failure_examples(
    rules: Sequence[VerdictRule],
) -> list[tuple[VerdictRule, Example]]:
    """Return pairs of a rule about failures and an example that it contradicts.

    An example is an error text, or a table with columns of a call (`facts.Inputs`).

    Raises:
        RuleError: an example is neither a text nor a table.
    """
    expected = [(rule, example) for rule in rules for example in examples(rule)]
    calls = [_failed_call(rule, value) for rule, (_, value) in expected]
    if not calls:
        return []
    # Evaluate all calls in one frame, which takes barely longer than evaluating one.
    matched = set(classify.matching_rules(pl.concat(calls), rules).select("row", "rule").rows())
    return [
        (rule, example)
        for row, (rule, example) in enumerate(expected)
        if ((row, rule.id) in matched) != (example[0] == "fires")
    ]


def _failed_call(rule: VerdictRule, example: Any) -> pl.DataFrame:
    call = {"outcome": "tool_error"} | _columns(rule, example, "error_text", facts.Inputs.schema())
    return _frame(rule, [call], facts.Inputs.schema())


def contradicted_result_examples(
    rule: HiddenRule, others: Sequence[HiddenRule] = ()
) -> list[Example]:
    """Return the examples that a rule about hidden errors contradicts.

    An example is a text, or a table with columns of a result (`hidden_errors.Inputs`, `usual`).

    Args:
        rule: the rule to check.
        others: all rules; needed for `echo` rules, which overrule the matches of other rules.

    Raises:
        RuleError: an example is neither a text nor a table.
    """
    wrong = []
    for kind, example in examples(rule):
        row = _columns(
            rule, example, "text", {**hidden_errors.Inputs.schema(), _USUAL_FORM: pl.String()}
        )
        usual = row.pop(_USUAL_FORM, None)
        rows = [row, *[{"text": '{"a": 1}'}] * (_OTHER_RESULTS if usual == "json" else 0)]
        frame = _frame(rule, rows, hidden_errors.Inputs.schema())
        decided = hidden_errors.find_hidden_errors(frame, others if rule.echo else (rule,))[
            "hidden_rule"
        ][0]
        if (decided == rule.id) != (kind == "fires"):
            wrong.append((kind, example))
    return wrong


def check(
    ruleset: Sequence[VerdictRule | HiddenRule],
    changed: Iterable[Mapping[str, Any]],
    *,
    where: str,
) -> None:
    """Check the rules that a user's file adds or changes against their examples.

    Args:
        ruleset: all rules in force.
        changed: the rows in the file; disabled rules are not in `ruleset`.
        where: the file's name, for error messages.

    Raises:
        RuleError: a rule does not match one of its `fires` examples, matches one of its `silent`
            examples, or an example is neither a text nor a table.
    """
    ids = {row["id"] for row in changed}
    hidden_rules = [rule for rule in ruleset if isinstance(rule, HiddenRule)]
    verdict_rules = [rule for rule in ruleset if isinstance(rule, VerdictRule)]
    wrong: list[tuple[VerdictRule | HiddenRule, Example]] = []
    try:
        wrong += contradicted_failure_examples([rule for rule in verdict_rules if rule.id in ids])
        for hidden in hidden_rules:
            if hidden.id in ids:
                wrong += [
                    (hidden, each) for each in contradicted_result_examples(hidden, hidden_rules)
                ]
    except RuleError as error:
        raise RuleError(f"{where}: {error}") from error
    for rule, (kind, example) in wrong:
        does = "does not match" if kind == "fires" else "matches"
        raise RuleError(
            f"{where}: rule {rule.id}: {does} its example {str(example)[:_SHOWN]!r} "
            f"(in {kind!r}); change the rule or the example"
        )


def _columns(rule: TextRule, example: Any, text: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule's example as a row; a string becomes the value of the column `text`.

    Args:
        rule: the rule.
        example: a string, or a table with names of columns.
        text: name of the column for a string.
        known: the columns that a table may have.
    """
    if isinstance(example, str):
        return {text: example}
    if not isinstance(example, Mapping):
        raise RuleError(f"rule {rule.id}: an example must be a text or a table, not {example!r}")
    for key in example.keys() - known.keys():
        raise RuleError(f"rule {rule.id}: unknown key {key!r} in an example{near(key, known)}")
    return dict(example)


def _frame(
    rule: TextRule, rows: list[dict[str, Any]], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    try:
        return pl.DataFrame(rows, schema=dict(schema), orient="row")
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        detail = f"{error}".partition("\n")[0]
        raise RuleError(
            f"rule {rule.id}: a value in an example has the wrong type: {detail}"
        ) from error
