"""Prepares example calls for the page: request, reply, and the evidence for the verdict.

Each call appears once on the page; priorities and table rows refer to it. Calls for the most
important rows are added first, until `BUDGET` is spent. Frames are read from the transcripts if
these still exist. Long frames are collapsed and cut; if several calls have the same result, the
page shows it once.
"""

import dataclasses
import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from mcptally.analytics import explain, explanation
from mcptally.analytics.explanation import Explanation
from mcptally.analytics.store import Store
from mcptally.output.html.text import duration, name, shown, shown_lines
from mcptally.plural import count
from mcptally.redaction.display import indented
from mcptally.tables.values import cell

BUDGET: Final = 2_000_000
"""Maximum size of all calls on the page together, in bytes."""
MAX_CALLS: Final = 1_200
"""Maximum number of calls read from the store."""
MAX_PAYLOAD: Final = 4_000
"""Maximum number of characters of a payload on the page."""
MAX_STDERR: Final = 3_000
"""Maximum number of stderr characters per call on the page."""
MAX_EVIDENCE: Final = 3_000
"""Maximum number of characters of a call's evidence on the page."""
MAX_INDENTED: Final = 40_000
"""Maximum length in characters of a payload that is masked and indented as a whole; longer payloads
are cut before masking."""
FOLDED: Final = 700
"""Number of characters above which a payload is collapsed."""
_FOLDED_LINES: Final = 16
_MARKUP: Final = 1_200
"""Approximate size of a call's markup in bytes."""
_USUAL_CALL: Final = 5_000
"""Typical size of a call on the page in bytes."""
_SMALLEST_BATCH: Final = 40
"""Minimum number of calls that are read at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Payload:
    """A call's request or reply, as shown on the page."""

    title: str
    text: Markup | None
    """The escaped text; None if there is no text or if the call `same_as` shows it."""
    folded: bool
    same_as: str | None
    """Id of a call on the page with the same arguments or result."""
    of_frame: str
    """What `text` contains: the whole `frame`, or only the `arguments` or `result`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call as shown on the page."""

    call_id: str
    target: str
    server: str
    outcome: str
    verdict: str | None
    facts: str
    """The call's time and duration."""
    place: str
    """File and line of the request."""
    error: Markup | None
    exception: Markup | None
    """The exception in a stack trace on stderr."""
    stderr: Markup | None
    """The stderr lines around the call."""
    not_read: str | None
    """The reason why the transcript was not read; None if it was read."""
    request: Payload
    reply: Payload
    evidence: Markup
    size: int
    """Approximate size on the page in bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Calls:
    """The calls on the page."""

    by_id: Mapping[str, Call]
    """Maps ids to calls, most important first."""
    omitted: int
    """Number of calls omitted because they exceed the budget."""

    @property
    def not_read(self) -> int:
        """Number of calls whose transcripts were not read."""
        return sum(call.not_read is not None for call in self.by_id.values())

    @property
    def size(self) -> int:
        """Approximate size of all calls in bytes."""
        return sum(call.size for call in self.by_id.values())


def load(store: Store, wanted: Sequence[str], problems: Mapping[str, Mapping[str, Any]]) -> Calls:
    """Read as many calls from a store as the budget allows.

    Args:
        store: the page's store.
        wanted: the calls' ids, most important first.
        problems: maps the ids of example calls to their rows of `priorities`.
    """
    calls: dict[str, Call] = {}
    owners: dict[str, str] = {}
    spent = 0
    for found in _explained(store, wanted[:MAX_CALLS], calls, problems):
        row, call_id = found.call, found.call["call_id"]
        call = _call(found, owners)
        if spent + call.size > BUDGET:
            break
        spent += call.size
        calls[call_id] = call
        for payload, text in ((call.request, row["arguments"]), (call.reply, row["response"])):
            if payload.text is not None and text is not None:
                owners.setdefault(text, call_id)
    return Calls(calls, len(wanted) - len(calls))


def _explained(
    store: Store,
    wanted: Sequence[str],
    calls: Mapping[str, Call],
    problems: Mapping[str, Mapping[str, Any]],
) -> Iterator[Explanation]:
    """Yield explanations of calls.

    The calls are read in batches that approximately fill the budget.

    Args:
        store: the page's store.
        wanted: the calls' ids.
        calls: the calls that are on the page so far.
        problems: maps the ids of example calls to their rows of `priorities`.
    """
    read, batch = 0, BUDGET // _USUAL_CALL
    while batch_ids := wanted[read : read + batch]:
        found = explain.explain_calls(store, batch_ids, longest=MAX_INDENTED + 1, problems=problems)
        yield from (found[call_id] for call_id in batch_ids if call_id in found)
        read += batch
        spent = sum(call.size for call in calls.values())
        batch = max(_SMALLEST_BATCH, (BUDGET - spent) * len(calls) // max(spent, 1))


def _call(found: Explanation, owners: Mapping[str, str]) -> Call:
    row = found.call
    target = row["tool"] or row["prompt"] or row["resource_uri"]
    at = cell("requested_at", row["requested_at"]) if row["requested_at"] else ""
    facts = (
        f"{at} UTC" if at else "unknown time",
        f"answered after {duration(row['latency_ms'])}"
        if row["latency_ms"] is not None
        else "no latency",
    )
    error = _content(row["error_text"], MAX_PAYLOAD)
    exception = _content(row.get("stderr_error"), MAX_PAYLOAD)
    stderr = _content(explanation.stderr(found), MAX_STDERR)
    request = _payload(
        f"Request {shown(row['method'], 60)}{f' {name(target)}' if target else ''} "
        f"({count(row['request_bytes'] or 0, 'byte')}, id {shown(row['request_id'], 60)})",
        found.request,
        "arguments",
        row,
        owners,
    )
    answered = row["answered_at"] is not None or row["response"] is not None
    reply = _payload(
        f"Reply ({count(row['response_bytes'] or 0, 'byte')})" if answered else "No reply",
        found.reply,
        "response",
        row,
        owners,
    )
    evidence = _content(explanation.evidence(found), MAX_EVIDENCE) or Markup()
    not_read = None if found.not_read is None else shown(found.not_read, 300)
    texts = [error, exception, stderr, request.text, reply.text, evidence]
    return Call(
        call_id=row["call_id"],
        target=name(target or row["method"]),
        server=name(row["server"]),
        outcome=row["outcome"],
        verdict=row["verdict"],
        facts=", ".join(facts),
        place=f"{shown(row['file'], 120)}:{row['line']}",
        error=error,
        exception=exception,
        stderr=stderr,
        not_read=not_read,
        request=request,
        reply=reply,
        evidence=evidence,
        size=_MARKUP + sum(len(text.encode()) for text in texts if text is not None),
    )


def _payload(
    title: str,
    frame: str | None,
    column: str,
    row: Mapping[str, Any],
    owners: Mapping[str, str],
) -> Payload:
    """Return the request or reply from a row of `calls`.

    Args:
        title: the payload's heading.
        frame: the whole frame, if the transcript was read.
        column: the column with part of the frame: `arguments` or `response`.
        row: the row of `calls`.
        owners: maps arguments or results on the page to the id of the call that shows them.
    """
    part = row[column]
    of_frame = "frame" if frame is not None else "arguments" if column == "arguments" else "result"
    text = part if frame is None else frame
    if text is None:
        return Payload(title, None, folded=False, same_as=None, of_frame=of_frame)
    owner = owners.get(part) if part is not None and len(part) > FOLDED else None
    if owner not in (None, row["call_id"]):
        return Payload(title, None, folded=False, same_as=owner, of_frame=of_frame)
    whole = indented(text) if len(text) <= MAX_INDENTED else text
    shown_text = _content(whole, MAX_PAYLOAD) or Markup()
    folded = len(shown_text) > FOLDED or shown_text.count("\n") > _FOLDED_LINES
    return Payload(title, shown_text, folded=folded, same_as=None, of_frame=of_frame)


def _content(text: str | None, limit: int) -> Markup | None:
    """Return recorded text as the content of an HTML element: masked, cut and escaped."""
    if not text:
        return None
    # Do not escape quotes: JSON has many quotes, and the content of elements does not require it.
    return Markup(html.escape(shown_lines(text, limit), quote=False))  # noqa: S704
