"""Proposes rules for a user's rule file, based on reviewers' answers, and shows their effects."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from mcptally.analytics.store import Store
from mcptally.errors import RuleError
from mcptally.redaction.display import mask_text
from mcptally.review.answers import Answer, CallKey
from mcptally.review.apply import Meaning, is_informative, meaning_of
from mcptally.review.settled import Settled
from mcptally.tables.calls import Calls
from mcptally.tables.outcomes import ERRORS, FAULTS, UNKNOWN, sql_list
from mcptally.verdict import classify
from mcptally.verdict.rule_set import RuleSet

FILE: Final = "rules.toml"
"""Name of the user's rule file in messages and suggested commands."""
EXAMPLES: Final = 3
"""Maximum number of example texts per rule that must match, and that must not match."""
LONGEST: Final = 300
"""Maximum length of an example text in characters."""
_PLACEHOLDERS: Final = re.compile("<[a-z]+>")
_SPECIAL: Final = re.compile(r"[\\.^$*+?{}\[\]|()]")
"""Characters that must be escaped in a regular expression."""


class Proposal(NamedTuple):
    """A proposed rule, as a row for a rule file, with its effects."""

    id: str
    toml: str
    changes: list[tuple[str | None, str | None, str, str | None, int]]
    """The verdicts that the rule would change, each with server, tool, template, previous verdict
    and number of calls."""
    verdict: str
    refused: str = ""
    """Why the row cannot be used; empty if it is valid."""


class _Reviewed(NamedTuple):
    """A failed call that has been reviewed, with the answer about it."""

    answer: Answer
    template: str
    text: str


def propose(store: Store, settled: Settled) -> str:
    """Return the proposed rules as TOML, with their effects in comments."""
    rows = list(proposals(store, settled))
    if not rows:
        return (
            "# No answer disagrees with a verdict whose text says enough for a rule.\n"
            "# Review failed calls first: mcptally review STORE\n"
        )
    head = f"# Save the rows that you agree with as {FILE}, then: mcptally score ARCHIVE "
    return head + f"-o STORE --rules {FILE}\n" + "".join(f"\n{_shown(row)}" for row in rows)


def proposals(store: Store, settled: Settled) -> Iterator[Proposal]:
    """Yield a proposed rule for each template whose verdict reviewers unanimously contradict."""
    reviewed = _reviewed(store, settled)
    by_template: dict[tuple[str, str], list[_Reviewed]] = defaultdict(list)
    for each in reviewed:
        by_template[each.answer.tool or "", each.template].append(each)
    own = store.manifest.get("own_rules", "")
    failed = _failed_calls(store)
    before = classify.judge(failed, RuleSet.parse(own, "the rules of the store").verdict)
    for (tool, template), group in sorted(by_template.items()):
        said = {each.answer.answer for each in group}
        meaning = meaning_of(next(iter(said)))
        if len(said) > 1 or meaning is None or not is_informative(template):
            continue
        if all(each.answer.verdict in (None, meaning.verdict) for each in group):
            continue
        others = [each for each in reviewed if each.template != template]
        row = _row(tool, template, group, others, meaning)
        yield _tried(row, own, failed, before)


_TEXTS: Final = f"""
SELECT recording, seq, dir, "index", template, error_text FROM calls
WHERE recording IN (SELECT unnest($1)) AND seq IN (SELECT unnest($2))
    AND template IS NOT NULL AND outcome IN {sql_list(ERRORS)}
"""


def _reviewed(store: Store, settled: Settled) -> list[_Reviewed]:
    keys = list(settled.calls)
    rows = store.sql(
        _TEXTS, params=[[key.recording for key in keys], [key.seq for key in keys]]
    ).fetchall()
    found = {CallKey(*row[:4]): row[4:] for row in rows}
    return [_Reviewed(settled.calls[key], *found[key]) for key in sorted(keys) if key in found]


def _row(
    tool: str,
    template: str,
    group: Sequence[_Reviewed],
    others: Sequence[_Reviewed],
    meaning: Meaning,
) -> dict[str, Any]:
    """Return the fields of a rule that matches a template.

    Args:
        tool: the tool's name.
        template: the template.
        group: the reviewed calls with this template, whose texts the rule must match.
        others: reviewed calls that the rule must not match.
        meaning: the verdict, reason and `retryable` that the reviewers' answer stands for.
    """
    answer = group[0].answer.answer
    slug = "-".join(re.findall("[a-z]+", _PLACEHOLDERS.sub("", template).lower())[:6])
    literals = (_SPECIAL.sub(r"\\\g<0>", part) for part in _PLACEHOLDERS.split(template))
    fires = {mask_text(each.text)[:LONGEST] for each in group}
    silent = {mask_text(each.text)[:LONGEST] for each in others} - fires
    why = sorted({each.answer.why for each in group} - {""})
    fields = {
        "id": f"verdict.ours.{slug}",
        "title": why[0] if why else f"Reviewed: {template[:80]}",
        "source": f"review by {', '.join(sorted({each.answer.who for each in group}))}",
        "order": 1,
        "verdict": str(meaning.verdict),
        "reason": meaning.reason,
        "fault": answer if answer in FAULTS else UNKNOWN,
        "tool": f"^{re.escape(tool)}$" if tool else "",
        "matches": [f"(?s){'.*?'.join(literals)}"],
        "fires": sorted(fires)[:EXAMPLES],
        "silent": sorted(silent)[:EXAMPLES],
    }
    return {name: value for name, value in fields.items() if value not in ("", [])}


def _tried(
    row: Mapping[str, Any], own: str, failed: pl.DataFrame, before: pl.DataFrame
) -> Proposal:
    """Apply a proposed row to the store's failed calls, and return it with its effects.

    Args:
        row: the fields of the rule.
        own: the user's rules with which the store was scored.
        failed: the failed calls.
        before: their verdicts without the row.
    """
    text = _toml({**row, **_examples(row)})
    try:
        rules = RuleSet.parse(f"{own}\n{text}", "the proposed row").verdict
    except RuleError as error:
        return Proposal(row["id"], text, [], row["verdict"], str(error))
    after = classify.judge(failed, rules)
    changed = failed.select("server", "tool", "template").with_columns(
        before=before.get_column(Calls.verdict.name), after=after.get_column(Calls.verdict.name)
    )
    changes = (
        changed.filter(pl.col("before").ne_missing(pl.col("after")))
        .group_by("server", "tool", "template", "before")
        .len()
        .sort("len", "server", "tool", descending=[True, False, False])
    )
    return Proposal(row["id"], text, changes.rows(), row["verdict"])


def _examples(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the examples of a row; if it applies to a single tool, the examples name the tool."""
    tool = row.get("tool")
    if tool is None:
        return {name: row[name] for name in ("fires", "silent") if name in row}
    name = re.sub(r"\\(.)", r"\1", tool[1:-1])
    return {
        kind: [{"error_text": text, "tool": name} for text in row[kind]]
        for kind in ("fires", "silent")
        if kind in row
    }


_FAILED: Final = f"SELECT * FROM calls WHERE outcome IN {sql_list(ERRORS)} AND dir = 'c2s'"


def _failed_calls(store: Store) -> pl.DataFrame:
    found: pl.DataFrame = store.sql(_FAILED).pl()
    return found


def _shown(row: Proposal) -> str:
    if row.refused:
        return f"# Cannot be used as it is: {row.refused}\n" + "".join(
            f"# {line}\n" for line in row.toml.splitlines()
        )
    total = sum(change[-1] for change in row.changes)
    lines = [f"# On this archive: {total} calls would change to {row.verdict}."]
    lines += [
        f"#   {calls} of {server} {tool}, until now {verdict}: {mask_text(template or '')[:80]}"
        for server, tool, template, verdict, calls in row.changes[:5]
    ]
    return "\n".join(line.replace("\n", " ") for line in lines) + f"\n{row.toml}"


def _toml(fields: Mapping[str, Any]) -> str:
    return "[[rule]]\n" + "".join(f"{name} = {_value(value)}\n" for name, value in fields.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(each)}" for name, each in value.items()) + " }"
    # A JSON string is a valid TOML basic string unless it contains DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
