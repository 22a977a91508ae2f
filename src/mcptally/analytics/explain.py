"""Explains calls: reads request and reply, and computes the evidence for the verdict.

`explanation` formats the result.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import polars as pl

from mcptally.analytics.explanation import Explanation
from mcptally.errors import QueryError
from mcptally.review.answers import template_of
from mcptally.tables.calls import Calls
from mcptally.tables.outcomes import FAILED, Verdict
from mcptally.transcript.recorded_calls import (
    CallPosition,
    Position,
    RecordedCall,
    read_calls,
)
from mcptally.verdict import classify, facts, text_model, weighing
from mcptally.verdict.rule_set import RuleSet

if TYPE_CHECKING:
    from mcptally.analytics.store import Store

WORDS_SHOWN: Final = 8
"""Maximum number of terms of a text that an explanation contains."""
READ_OF_TRANSCRIPTS: Final = 2 << 30
"""Maximum number of transcript bytes that are read for one call; half as many for a batch of calls.
"""


def explain(store: "Store", call: str, *, seed: bool = False) -> Explanation:
    """Return a call with all the evidence for its verdict, for `Store.show`.

    Args:
        store: the store that contains the call.
        call: the `call_id`, or a unique prefix of it.
        seed: whether to include the call's row of `seed_scores`.

    Raises:
        QueryError: no call has this id, or several ids start with it.
    """
    frame = one_call(store, call)
    found = _explanations(store, frame, READ_OF_TRANSCRIPTS, seed=seed)[0]
    if found.call["outcome"] not in FAILED or found.call["tool"] is None:
        return found
    return dataclasses.replace(found, contrast=_contrast(store, found.call))


def one_call(store: "Store", call: str, query: str = "SELECT * FROM calls") -> pl.DataFrame:
    """Return the row of a query for the call whose id begins with `call`.

    Args:
        store: the store to ask.
        call: the `call_id`, or a unique prefix of it.
        query: a SELECT of `call_id` and other columns, without a condition.

    Raises:
        QueryError: no call has this id, or several ids start with it.
    """
    begins = "WHERE starts_with(call_id, ?)"
    frame: pl.DataFrame = store.sql(f"{query} {begins} LIMIT 2", params=[call]).pl()
    if frame.is_empty():
        raise QueryError(f"no call has the id {call!r}; ids are in the column call_id of calls")
    if frame.height > 1:
        number, first = store.sql(
            f"SELECT count(*), list(call_id ORDER BY call_id)[:5] FROM calls {begins}",
            params=[call],
        ).fetchall()[0]
        raise QueryError(
            f"{number:,} calls have ids that begin with {call!r}; give more characters "
            f"({', '.join(first)}{', …' if number > len(first) else ''})"
        )
    return frame


def _contrast(store: "Store", call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the row of `contrasts` for the group to which a failed call belongs, or None."""
    template = template_of(call["template"], call["outcome"])
    rows = store.ask("contrasts", server=call["server"], tool=call["tool"]).pl()
    about = {"server": call["server"], "template": template, "verdict": call["verdict"]}
    for name, value in about.items():
        rows = rows.filter(pl.col(name).eq_missing(pl.lit(value)))
    return rows.row(0, named=True) if rows.height else None


def explain_calls(
    store: "Store",
    calls: Sequence[str],
    *,
    longest: int,
    problems: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Explanation]:
    """Explain a batch of calls, without their rows of `seed_scores`.

    Args:
        store: the store that contains the calls.
        calls: the `call_id` of each call; calls that the store lacks are omitted.
        longest: maximum number of characters to keep of a frame or result.
        problems: maps the ids of example calls to their rows of `priorities`.

    Returns:
        A map of each `call_id` to the explanation.
    """
    frame = store.sql(
        f"SELECT * REPLACE (left(response, {longest:d}) AS response) FROM calls "
        "WHERE call_id IN (SELECT unnest(?))",
        params=[list(calls)],
    ).pl()
    order = {call: number for number, call in enumerate(calls)}
    frame = frame.sort(Calls.call_id.col.replace_strict(order, return_dtype=pl.Int64))
    found = _explanations(store, frame, READ_OF_TRANSCRIPTS // 2, seed=False, problems=problems)
    return {
        one.call["call_id"]: dataclasses.replace(
            one,
            request=one.request and one.request[:longest],
            reply=one.reply and one.reply[:longest],
        )
        for one in found
    }


def _explanations(
    store: "Store",
    frame: pl.DataFrame,
    most_bytes: int,
    *,
    seed: bool,
    problems: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[Explanation]:
    """Explain the calls in `frame`, reading at most `most_bytes` of transcripts."""
    rules = RuleSet.parse(store.manifest.get("own_rules", ""), "the rules of the store")
    recorded = _recorded(store, frame, most_bytes)
    frame = _with_evidence(frame, rules)
    judgements = _judgements(frame, rules)
    ids = frame.get_column(Calls.call_id.name).to_list()
    findings = _rows_by(
        store,
        "call_id",
        "SELECT call_id, rule, severity, path, message FROM findings "
        "WHERE call_id IN (SELECT unnest(?)) ORDER BY rule, path, message",
        ids,
    )
    attempts = _rows_by(
        store,
        "attempt_of",
        "SELECT attempt_of, call_id, attempt, attempt_why, method, outcome, latency_ms, "
        "requested_at FROM calls WHERE attempt_of IN (SELECT unnest(?)) "
        "ORDER BY attempt, requested_at",
        frame.get_column(Calls.attempt_of.name).drop_nulls().unique().to_list(),
    )
    repetitions = _rows_by(store, "of_call", _REPETITIONS, ids)
    unanswered = frame.filter(Calls.outcome.col == "no_response").get_column(Calls.call_id.name)
    crashes = _rows_by(store, "of_call", _CRASHES, unanswered.to_list())
    failed = frame.filter(Calls.outcome.col.is_in(FAILED)).get_column(Calls.call_id.name)
    others = [call for call in failed if call not in problems]
    found = _rows_by(store, "call_id", _PROBLEMS, others)
    problems = {**problems, **{call: rows[0] for call, rows in found.items()}}
    scores = _rows_by(
        store,
        "of_call",
        "SELECT call_id AS of_call, * FROM seed_scores WHERE call_id IN (SELECT unnest(?))",
        ids if seed else [],
    )
    return [
        Explanation(
            call=call,
            **dataclasses.asdict(frames),
            **judgement._asdict(),
            hidden_rule=next(
                (_rule(rule) for rule in rules.hidden if rule.id == call["hidden_rule"]), None
            ),
            findings=findings.get(call["call_id"], []),
            attempts=attempts.get(call["attempt_of"], []),
            seed=scores[call["call_id"]][0] if seed else None,
            repetition=next(iter(repetitions.get(call["call_id"], ())), None),
            crash=next(iter(crashes.get(call["call_id"], ())), None),
            problem=problems.get(call["call_id"]),
        )
        for call, frames, judgement in zip(
            frame.iter_rows(named=True), recorded, judgements, strict=True
        )
    ]


def _with_evidence(frame: pl.DataFrame, rules: RuleSet) -> pl.DataFrame:
    """Add `evidence` to judged calls that are stored without it."""
    unknown = Calls.evidence.col.is_null() & Calls.outcome.col.is_in(FAILED)
    if not frame.filter(unknown).height:
        return frame
    judged = classify.judge(frame, rules.verdict).get_column(Calls.evidence.name)
    return frame.with_columns(pl.coalesce("evidence", judged.alias("judged")))


class _Judgement(NamedTuple):
    """The reasons for a call's verdict.

    The fields have the same meaning as those of `Explanation` with the same names.
    """

    rules: list[dict[str, Any]]
    contributions: list[dict[str, Any]]
    probabilities: dict[str, float]
    text_model: dict[str, float]
    words: list[tuple[str, float]]


def _judgements(frame: pl.DataFrame, rules: RuleSet) -> Iterator[_Judgement]:
    """Yield the reasons for the verdict of each call in `frame`."""
    evidence = frame.get_column(Calls.evidence.name).fill_null([])
    present = set(evidence.explode(empty_as_null=False).drop_nulls())
    firing = [rule for rule in rules.verdict if rule.id in present]
    about = {rule.id: _rule(rule) for rule in firing}
    rows: dict[str, list[int]] = {rule.id: [] for rule in firing}
    for number, ids in enumerate(evidence):
        for rule_id in rows.keys() & set(ids):
            rows[rule_id].append(number)
    error_texts = facts.texts_of(frame)
    matched = facts.matched_texts(error_texts, firing, rows)
    names, features = classify.features(evidence, firing)
    weights, model = weighing.shipped_weights(), text_model.shipped_model()
    masked = facts.masked_texts(error_texts)
    opinions = text_model.opinions(masked, model)
    verdicts = frame.get_column(Calls.verdict.name)
    words = text_model.words(masked, verdicts, model, WORDS_SHOWN)
    best = np.array([weighing.CLASSES.index(each or Verdict.AMBIGUOUS) for each in verdicts])
    by_rules = weighing.probabilities(features, names, weights)
    alone = weighing.is_alone(features, names, firing)
    pooled = weighing.pooled(by_rules, opinions, model.pooled, alone)
    shares = weighing.given_a_cause(pooled, best)
    for number, (ids, verdict) in enumerate(
        zip(evidence.to_list(), verdicts.to_list(), strict=True)
    ):
        matching = [rule for rule in firing if rule.id in ids]
        texts = [matched[rule.id][number] if rule.matches else None for rule in matching]
        found = [
            about[rule.id] | {"matched": text} for rule, text in zip(matching, texts, strict=True)
        ]
        if verdict is None or (matching and matching[0].decides):
            yield _Judgement(found, [], {}, {}, [])
            continue
        behind = weighing.rules_by_feature(matching)
        contributions = [
            {"evidence": name, "rules": behind.get(name, []), "weight": round(weight, 2)}
            for name, weight in weighing.contributions(features[number], names, verdict, weights)
        ]
        probabilities = {
            str(name): round(float(share), 3)
            for name, share in zip(weighing.CLASSES, shares[number], strict=True)
            if share
        }
        opinion = {
            str(name): round(float(share), 3)
            for name, share in zip(text_model.CLASSES, opinions[number], strict=True)
        }
        yield _Judgement(found, contributions, probabilities, opinion, words[number])


_REPETITIONS: Final = """
SELECT
    call_id AS of_call, _repeatability(same_failed, same_calls) AS repeatability, same_calls,
    same_failed, calls - same_calls AS other_calls,
    worked - (same_calls - same_failed) AS other_worked
FROM (
    SELECT
        w.call_id, count(*) AS calls, count(*) FILTER (c.outcome = 'ok') AS worked,
        count(*) FILTER (c.same_hash = w.same_hash) AS same_calls,
        count(*) FILTER (c.same_hash = w.same_hash AND _failed(c.outcome)) AS same_failed
    FROM _comparable_calls w
    JOIN _comparable_calls c ON c.server IS NOT DISTINCT FROM w.server AND c.tool = w.tool
    WHERE w.call_id IN (SELECT unnest(?))
    GROUP BY w.call_id
)
"""
_CRASHES: Final = """
SELECT call_id AS of_call, start_failure, last_words
FROM calls
JOIN recordings USING (recording)
WHERE call_id IN (SELECT unnest(?))
    AND (start_failure IS NOT NULL OR (reason = 'server_crash' AND last_words IS NOT NULL))
"""
_PROBLEMS: Final = """
SELECT
    call_id, cause, kind, fault, suspected, reason, certainty, uncertain, hidden_certainty, affected
FROM affected_calls
WHERE call_id IN (SELECT unnest(?))
"""
_REPLIES: Final = """
SELECT call_id, file, line, seq, "index" FROM messages
WHERE recording IN (SELECT unnest(?)) AND call_id IN (SELECT unnest(?))
    AND kind IN ('result', 'error') AND "match" IN ('exact', 'loose', 'late')
"""


def _recorded(store: "Store", frame: pl.DataFrame, most_bytes: int) -> list[RecordedCall]:
    """Read the frames of each call, and the stderr around it, from the transcripts."""
    if not store.has_payloads:
        # Don't read payloads from transcripts, because the user chose a store without payloads.
        return [RecordedCall(not_read="the store was made with --no-payloads")] * frame.height
    answered = frame.filter(Calls.answered_at.col.is_not_null() | Calls.response.col.is_not_null())
    parameters = [answered.get_column(name).to_list() for name in ("recording", "call_id")]
    replies = {
        call: Position(*reply) for call, *reply in store.sql(_REPLIES, params=parameters).fetchall()
    }
    columns = ("call_id", "recording", "file", "line", "seq", "index")
    return read_calls(
        [
            CallPosition(recording, Position(*request), replies.get(call))
            for call, recording, *request in frame.select(columns).iter_rows()
        ],
        most_bytes=most_bytes,
        folder=store.path.resolve() / (store.manifest.get("started_in") or Path.cwd()),
    )


def _rule(rule: Any) -> dict[str, Any]:
    about = msgspec.structs.asdict(rule)
    return {key: about[key] for key in about if about[key] not in ((), "", None, False)}


def _rows_by(
    store: "Store", key: str, sql: str, wanted: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Run a query with the list `wanted` as its parameter; group the rows by the column `key`.

    If the list is empty, there are no rows.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    if not wanted:
        return found
    for row in store.sql(sql, params=[wanted]).pl().to_dicts():
        found.setdefault(row.pop(key), []).append(row)
    return found
