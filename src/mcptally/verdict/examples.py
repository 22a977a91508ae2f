"""Whether rules hold for their own examples: those that must fire, and those that must not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from mcptally.errors import RuleError, near
from mcptally.verdict import classify, hidden_errors
from mcptally.verdict.rule_model import HiddenRule, TextRule, VerdictRule

_USUAL: Final = "usual"
"""Of an example of a hidden error: `json` says that the tool's other results are JSON."""

_OTHERS: Final = 19
"""How many other results such a tool has."""

_SHOWN: Final = 200

Example = tuple[str, Any]
"""`fires` or `silent`, and what the rule must do that for."""


def examples(rule: TextRule) -> Iterator[Example]:
    """The examples of a rule."""
    for kind in ("fires", "silent"):
        for example in getattr(rule, kind):
            yield kind, example


def wrong_about_failures(rule: VerdictRule) -> list[Example]:
    """The examples for which a rule about failures does not do what they say.

    An example is a text, or members of a call (`failures.INPUTS`).

    Raises:
        RuleError: an example is neither.
    """
    said = list(examples(rule))
    calls = [
        {"outcome": "tool_error"} | _members(rule, example, "error_text", classify.INPUTS)
        for _, example in said
    ]
    firing = set(classify.firing(_frame(rule, calls, classify.INPUTS), (rule,))["row"])
    return [each for row, each in enumerate(said) if (row in firing) != (each[0] == "fires")]


def wrong_about_results(rule: HiddenRule, others: Sequence[HiddenRule] = ()) -> list[Example]:
    """The examples for which a rule about hidden errors does not do what they say.

    An example is a text, or members of a result (`hidden_errors.INPUTS`, and `usual`).

    Args:
        rule: the rule.
        others: all rules, for one that silences what others find (`echo`).

    Raises:
        RuleError: an example is neither.
    """
    wrong = []
    for kind, example in examples(rule):
        row = _members(rule, example, "text", {**hidden_errors.INPUTS, _USUAL: pl.String()})
        usual = row.pop(_USUAL, None)
        rows = [row, *[{"text": '{"a": 1}'}] * (_OTHERS if usual == "json" else 0)]
        frame = _frame(rule, rows, hidden_errors.INPUTS)
        decided = hidden_errors.hidden(frame, others if rule.echo else (rule,))["hidden_rule"][0]
        if (decided == rule.id) != (kind == "fires"):
            wrong.append((kind, example))
    return wrong


def check(
    ruleset: Sequence[VerdictRule | HiddenRule],
    changed: Iterable[Mapping[str, Any]],
    *,
    where: str,
) -> None:
    """Hold the rules that a user's rows made or changed against their examples.

    Args:
        ruleset: all rules in force.
        changed: the rows; those that took a rule out are not among the rules.
        where: names the file in errors.

    Raises:
        RuleError: a rule does not fire for an example that says so, fires for one that must stay
            silent, or has an example that is neither text nor call.
    """
    ids = {row["id"] for row in changed}
    results = [rule for rule in ruleset if isinstance(rule, HiddenRule)]
    for rule in ruleset:
        if rule.id not in ids:
            continue
        try:
            wrong = (
                wrong_about_results(rule, results)
                if isinstance(rule, HiddenRule)
                else wrong_about_failures(rule)
            )
        except RuleError as error:
            raise RuleError(f"{where}: {error}") from error
        for kind, example in wrong:
            does = "does not fire for" if kind == "fires" else "fires for"
            raise RuleError(
                f"{where}: rule {rule.id}: {does} its example {str(example)[:_SHOWN]!r} "
                f"(in {kind!r}); mend the rule, or say other examples"
            )


def _members(rule: TextRule, example: Any, text: str, known: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(example, str):
        return {text: example}
    if not isinstance(example, Mapping):
        raise RuleError(f"rule {rule.id}: an example is a text or a table, not {example!r}")
    for key in example.keys() - known.keys():
        raise RuleError(f"rule {rule.id}: an example has no {key!r}{near(key, known)}")
    return dict(example)


def _frame(
    rule: TextRule, rows: list[dict[str, Any]], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    try:
        return pl.DataFrame(rows, schema=dict(schema), orient="row")
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        words = f"{error}".partition("\n")[0]
        raise RuleError(f"rule {rule.id}: a value of an example cannot be: {words}") from error
