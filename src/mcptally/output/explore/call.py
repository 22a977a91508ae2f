"""Builds a call's page: request and reply as trees, evidence for the verdict, and context."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from mcptally.analytics import contrasts, explain, explanation
from mcptally.analytics.explanation import SMALLEST_SHOWN, Explanation
from mcptally.errors import QueryError, as_argument
from mcptally.output.explore import parts, session
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Crumb, Page, Section
from mcptally.output.explore.trees import Tree
from mcptally.output.html.text import shown, shown_lines
from mcptally.review.answers import template_of
from mcptally.tables.outcomes import FAULTS, OUTCOMES, meaning_of
from mcptally.tables.values import cell

_LONGEST: Final = 2_000_000
"""Maximum number of characters read from a frame."""
STDERR: Final = 20_000
BESIDE: Final = 8
"""Number of calls shown before and after the call on the waterfall."""

_LIKE: Final = """
SELECT call_id, requested_at, outcome, verdict, latency_ms, left(arguments, 200) AS arguments,
    arguments = $2 AS same
FROM calls
WHERE server IS NOT DISTINCT FROM $3 AND tool = $4 AND call_id <> $1
    AND (arguments = $2 OR template = $5)
ORDER BY same DESC, requested_at DESC NULLS LAST LIMIT 12
"""


def page(answers: Answers, links: Links, wanted: str) -> Page:
    """Return the page of a call.

    Raises:
        QueryError: no call has this id, or several ids begin with it.
    """
    found = explained(answers, wanted)
    row = found.call
    target = row["tool"] or row["prompt"] or row["resource_uri"]
    return Page(
        "call",
        f"{row['method']} {shown(target, 90) if target else ''}".rstrip(),
        about="call",
        crumbs=_crumbs(links, row),
        head=_head(answers, found),
        sections=[
            Section("request", "Request", lambda: request_of(found)),
            Section("reply", "Reply", lambda: reply_of(found)),
            Section("decided", "What decided", lambda: decided_of(found)),
            Section("stderr", "stderr of the server around the call", lambda: stderr_of(found)),
            Section("around", "In its session", lambda: _around(answers, row)),
            Section("attempts", "Attempts", lambda: _attempts(found)),
            Section("like", "Calls like this", lambda: similar_calls_of(answers, found)),
        ],
    )


def explained(answers: Answers, wanted: str) -> Explanation:
    """Return a call's explanation, with secrets masked.

    Raises:
        QueryError: no call has this id, or several ids begin with it.
    """
    # Rules must be applied to the recorded texts, not to masked texts.
    store = answers.recorded
    call_id = explain.one_call(store, wanted, "SELECT call_id FROM calls")["call_id"][0]
    found = explain.explain_calls(store, [call_id], longest=_LONGEST)
    if not found:  # a run has replaced the store meanwhile
        raise QueryError(f"no call has the id {wanted!r}")
    return explanation.masked(found[call_id])


def _crumbs(links: Links, row: Mapping[str, Any]) -> list[Crumb]:
    found = parts.crumbs(links, row)
    if row["verdict"] is not None:
        text = row["template"] or f"no text: {row['outcome']}"
        found.append((shown(text, 60), links.group(row["call_id"])))
    return found


def _head(answers: Answers, found: Explanation) -> dict[str, Any]:
    row = found.call
    return {
        "row": row,
        "when": cell("requested_at", row["requested_at"]),
        "outcome": OUTCOMES[row["outcome"]],
        "verdict": meaning_of(row["verdict"], row["fault"]) if row["verdict"] else None,
        "fault": FAULTS.get(row["fault"], ""),
        "problem": explanation.problem_of(found.problem) if found.problem else None,
        "repro": f"mcptally repro {as_argument(answers.recorded.path)} {row['call_id']}",
        "show": f"mcptally show {as_argument(answers.recorded.path)} {row['call_id']}",
        "label": _label(row),
        "frame": None if found.request is None else shown_lines(found.request, _LONGEST),
        "not_read": found.not_read,
    }


def _label(row: Mapping[str, Any]) -> str:
    """Return a line for a label file, which identifies the call and states mcptally's verdict."""
    number = row["request_id"]
    # A JSON-RPC id may be any text.
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        number = json.loads(number)
    return shown_lines(
        json.dumps(
            {
                "recording": row["recording"],
                "id": number,
                "method": row["method"],
                "server": row["server"],
                "tool": row["tool"],
                "hidden": row["outcome"] == "hidden_error",
                "verdict": row["verdict"] or "not_error",
                "reason": row["reason"],
            },
            ensure_ascii=False,
        ),
        4000,
    )


def _decisive(found: Explanation) -> list[str]:
    """Return the texts that decided the verdict, followed by the error's first line."""
    row = found.call
    own = [rule for rule in found.rules if rule["verdict"] == row["verdict"]]
    texts = [rule.get("matched") or "" for rule in own]
    first = (row["error_text"] or "").partition("\n")[0]
    return [shown_lines(text, 400) for text in (*texts, first) if text]


def request_of(found: Explanation) -> dict[str, Any]:
    """Return the request as a tree that marks errors against the input schema."""
    row = found.call
    before = "" if found.request is None else "/params/arguments"
    return _payload(found, explanation.requested(found), before, "input", row["request_bytes"])


def reply_of(found: Explanation) -> dict[str, Any] | None:
    """Return the reply as a tree that marks errors against the output schema."""
    row = found.call
    if row["answered_at"] is None and row["response"] is None:
        return {"tree": None, "bytes": 0, "state": None, "error": None, "raw": None, "path": ""}
    before = "/structuredContent" if found.reply is None else "/result/structuredContent"
    return _payload(found, explanation.replied_with(found), before, "output", row["response_bytes"])


def _payload(
    found: Explanation, text: str | None, before: str, side: str, size: int | None
) -> dict[str, Any]:
    """Return a payload as a tree.

    Args:
        found: the call.
        text: the payload's JSON text.
        before: JSON Pointer to the part of the payload to which the schema applies.
        side: `input` or `output`.
        size: size on the wire in bytes.
    """
    row = found.call
    state, error = row[f"{side}_schema_state"], row[f"{side}_schema_error"]
    path = row[f"{side}_schema_path"]
    errors = {f"{before}{path or ''}": error} if error else {}
    tree = Tree(errors, _decisive(found))
    return {
        "tree": None if text is None else tree.render(text),
        "raw": None if text is None else shown_lines(text, _LONGEST),
        "bytes": size,
        "state": state,
        "error": error,
        "path": path,
    }


def decided_of(found: Explanation) -> dict[str, Any]:
    """Return the outcome, the verdict, and the weights of the evidence, drawn as bars."""
    weights = [one for one in found.contributions if abs(one["weight"]) >= SMALLEST_SHOWN]
    most = max((abs(one["weight"]) for one in weights), default=1.0)
    bars = [
        {
            "words": explanation.in_words(one, found.rules),
            "weight": one["weight"],
            "x": round(75 - 70 * max(0.0, -one["weight"]) / most, 1),
            "width": round(70 * abs(one["weight"]) / most, 1),
        }
        for one in weights
    ]
    return {
        "bars": bars,
        "shares": explanation.shares(found.probabilities),
        "rules": found.rules,
        "alone": found.rules[0] if found.rules and not found.probabilities else None,
        "hidden_rule": found.hidden_rule,
        "model": explanation.shares(found.text_model),
        "terms": found.words,
        "findings": found.findings,
        "row": found.call,
    }


def stderr_of(found: Explanation) -> dict[str, Any] | None:
    """Return the server's stderr output around the call, or None if it wrote nothing."""
    lines = explanation.stderr(found)
    if not lines and not found.call["stderr_error"]:
        return None
    exception = found.call["stderr_error"]
    return {
        "lines": shown_lines(lines, STDERR),
        "exception": shown_lines(exception, STDERR) if exception else None,
    }


def _around(answers: Answers, row: Mapping[str, Any]) -> dict[str, Any] | None:
    if row["session"] is None:
        return None
    found = session.around(answers, row["session"], row["call_id"], BESIDE)
    return {"turns": found, "session": row["session"], "call_id": row["call_id"]} if found else None


def _attempts(found: Explanation) -> dict[str, Any] | None:
    if len(found.attempts) < 2:
        return None
    return {"rows": found.attempts, "call_id": found.call["call_id"]}


def similar_calls_of(answers: Answers, found: Explanation) -> dict[str, Any] | None:
    """Return the calls with the same arguments or the same error, and what they have in common."""
    row = found.call
    if row["tool"] is None:
        return None
    rows = answers.sql(
        _LIKE, row["call_id"], row["arguments"], row["server"], row["tool"], row["template"]
    ).to_dicts()
    same = contrasts.repetition(found.repetition) if found.repetition else None
    shared = _contrast(answers, row) if row["verdict"] is not None else None
    if not (rows or same or shared):
        return None
    return {"rows": rows, "same": same, "shared": shared, "row": row}


def _contrast(answers: Answers, row: Mapping[str, Any]) -> str | None:
    template = template_of(row["template"], row["outcome"])
    found = parts.contrasts_of(answers, row["server"], row["tool"], template, row["verdict"])
    return contrasts.sentence(found[0]) if found else None
