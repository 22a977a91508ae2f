"""Selects calls to review: from the groups with the most doubtful calls, or from a sample."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mcptally.review.answers import CallKey, Drawn, group_id, text_digest
from mcptally.review.sample import FILTERED, SHOWN_TEMPLATE, ReviewedStore
from mcptally.tables.outcomes import FAILED, sql_list


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """A call to review. Its texts are not masked: mask them before showing them to others."""

    call_id: str
    key: CallKey
    server: str | None
    tool: str | None
    outcome: str
    verdict: str | None
    fault: str | None
    certainty: float | None
    rule: str | None
    error_text: str | None
    arguments: str | None
    response: str | None
    definition: str | None
    group: str | None
    """`answers.group_id` of a failed call; None for a call that worked, which has no group."""
    template: str | None
    calls: int
    """Number of calls to which an answer about the group applies; 1 for a call without a group."""
    share: float
    """The share of these `calls` among all failed calls; 0 for a call that did not fail."""
    sample: str | None = None
    """The sample that contains the call; None if the call is shown because its group is large."""

    @property
    def is_ours(self) -> bool:
        """Whether the verdict comes from mcptally, not from an earlier review."""
        return not (self.rule or "").startswith("review")

    @property
    def text(self) -> str | None:
        """`answers.text_digest` of the reply; None if the store has no payloads."""
        return (
            None if self.response is None and self.arguments is None else text_digest(self.response)
        )


_FAILED: Final = f"outcome IN {sql_list(FAILED)}"
_LARGEST: Final = f"""
SELECT server, tool, {SHOWN_TEMPLATE} AS shown, definition, count(*) AS calls,
    sum(1 - coalesce(certainty, 50) / 100) AS doubt, arg_min(call_id, md5(call_id)) AS call_id,
    sum(count(*)) OVER () AS failed
FROM calls WHERE {FILTERED} AND {_FAILED} AND NOT starts_with(coalesce(rule, ''), 'review')
GROUP BY ALL ORDER BY doubt DESC, calls DESC, call_id
"""
_DETAILS: Final = f"""
SELECT call_id, recording, seq, dir, "index", server, tool, outcome, verdict, fault, certainty,
    rule, error_text, arguments, response, definition,
    CASE WHEN {_FAILED} THEN {SHOWN_TEMPLATE} END AS template
FROM calls
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A group of failed calls for which a single answer is enough."""

    group: str
    definition: str | None
    calls: int
    share: float
    """The group's share of all failed calls that have no answer."""
    call_id: str


def largest(
    store: ReviewedStore, *, server: str | None = None, tool: str | None = None
) -> list[Group]:
    """Return the groups of failed calls in descending order of number of calls times doubt."""
    rows = store.sql(_LARGEST, params=[server, tool]).fetchall()
    return [
        Group(group_id(row[0], row[1], row[2]), row[3], row[4], row[4] / row[7], row[6])
        for row in rows
    ]


def of_groups(store: ReviewedStore, groups: Sequence[Group]) -> list[Item]:
    """Return one item per group: the group's example call."""
    by_call = {each.call_id: each for each in groups}
    rows = _rows(store, "WHERE call_id IN (SELECT unnest($1))", [list(by_call)])
    found = {row["call_id"]: row for row in rows}
    return [
        _item(found[each.call_id], each.calls, each.share)
        for each in groups
        if each.call_id in found
    ]


_OF_KEYS: Final = "WHERE recording IN (SELECT unnest($1)) AND seq IN (SELECT unnest($2))"


def of_keys(store: ReviewedStore, keys: Sequence[CallKey]) -> list[Item]:
    """Return the calls with these keys as items, in order; omit calls that are not in the store."""
    rows = _rows(store, _OF_KEYS, [[key.recording for key in keys], [key.seq for key in keys]])
    found = {_key(row): row for row in rows}
    return [_item(found[key], 1, 0.0) for key in keys if key in found]


def of_sample(store: ReviewedStore, drawn: Sequence[Drawn], sample: str) -> list[Item]:
    """Return the drawn calls as items, in order; omit calls that are not in the store."""
    sizes = {each.key: each.size for each in drawn}
    return [
        dataclasses.replace(item, calls=sizes[item.key], sample=sample)
        for item in of_keys(store, [each.key for each in drawn])
    ]


def of_calls(store: ReviewedStore, calls: Sequence[str]) -> list[Item]:
    """Return the calls with these ids as items; omit calls that are not in the store."""
    return [
        _item(row, 1, 0.0)
        for row in _rows(store, "WHERE call_id IN (SELECT unnest($1))", [list(calls)])
    ]


_REVIEWED: Final = f"""
SELECT count(*) FROM calls WHERE {FILTERED} AND starts_with(coalesce(rule, ''), 'review')
"""


def decided_calls(
    store: ReviewedStore, *, server: str | None = None, tool: str | None = None
) -> int:
    """Return the number of calls whose verdict comes from a reviewer."""
    found: int = store.sql(_REVIEWED, params=[server, tool]).fetchall()[0][0]
    return found


def _rows(store: ReviewedStore, where: str, params: Iterable[Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.sql(_DETAILS + where, params=list(params)).pl().to_dicts()
    return rows


def _key(row: dict[str, Any]) -> CallKey:
    return CallKey(row["recording"], row["seq"], row["dir"], row["index"])


def _item(row: dict[str, Any], calls: int, share: float) -> Item:
    template = row["template"]
    names = (
        *("call_id", "server", "tool", "outcome", "verdict", "fault", "certainty", "rule"),
        *("error_text", "arguments", "response", "definition", "template"),
    )
    return Item(
        **{name: row[name] for name in names},
        key=_key(row),
        group=None if template is None else group_id(row["server"], row["tool"], template),
        calls=calls,
        share=share,
    )
