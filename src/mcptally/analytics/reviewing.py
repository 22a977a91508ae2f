"""Lets users review the calls in an open store: shows calls, and returns tables to fill in."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from mcptally.analytics import contrasts
from mcptally.errors import UsageError
from mcptally.redaction.display import mask_value
from mcptally.review import estimates, items
from mcptally.review.answers import ANSWERS, KEYS, Sample, read
from mcptally.review.items import Item
from mcptally.review.place import file_of_store
from mcptally.review.sample import FILTERED
from mcptally.review.session import Session
from mcptally.review.settled import settle

if TYPE_CHECKING:
    from mcptally.analytics.store import Store

LONGEST: Final = 4000
"""Maximum number of characters of a payload that is shown to a reviewer."""


def open_session(
    store: "Store",
    reviews: str | Path | None = None,
    *,
    who: str | None = None,
    server: str | None = None,
    tool: str | None = None,
) -> Session:
    """Start a review of a store, or continue it.

    Args:
        store: the store. A masked store is opened again without masking, because answers contain
            digests of the unmasked texts.
        reviews: the file of answers; the default is in the same folder as the archive.
        who: the reviewer's name; by default, the user's name.
        server: only calls to this server.
        tool: only calls to this tool.

    Raises:
        QueryError: there is no such server or tool.
        UsageError: no file is given, and the archive's folder is not writable.
        UnreadableError: the file has a line that is not an answer.
    """
    recorded = _recorded(store)
    _require_calls(recorded, server, tool)
    return Session(recorded, reviews, who=who, server=server, tool=tool)


def _recorded(store: "Store") -> "Store":
    return type(store)(store.path, memory=store.memory) if store.masked else store


def _require_calls(store: "Store", server: str | None, tool: str | None) -> None:
    if (server or tool) and not store.sql(
        f"SELECT 1 FROM calls WHERE {FILTERED} LIMIT 1", params=[server, tool]
    ).fetchall():
        store.ask("tool_scores", server=server, tool=tool)  # reject unknown names, with suggestions
        raise UsageError(f"no call to server {server!r} and tool {tool!r} is counted by rates")


def reviewed_rates(store: "Store", file: Path) -> list[estimates.ReviewedRate]:
    """Return the rates from the last completely reviewed sample of each server or tool.

    Args:
        store: the store.
        file: the file of answers.
    """
    reviews = read(file)
    known = settle(reviews)
    last: dict[tuple[str | None, str | None], Sample] = {}
    for each in sorted(reviews.samples, key=lambda each: each.at):
        if not estimates.missing(each, known):
            last[each.server, each.tool] = each
    return [rate for each in last.values() for rate in estimates.rates(store, each, known)]


_BY_VERDICTS: Final = """
SELECT coalesce(sum(tool_failures) / sum(calls), 0) FROM usage
WHERE ($1 IS NULL OR server = $1) AND ($2 IS NULL OR tool = $2)
"""


def failure_rate_in_words(
    store: "Store",
    server: str | None = None,
    tool: str | None = None,
    *,
    file: Path | None = None,
) -> str | None:
    """Return a sentence with the failure rate estimated from the last reviewed sample.

    The sentence also gives the rate according to the verdicts. Returns None if the file of answers
    contains no completely reviewed sample.

    Args:
        store: the store.
        server: the server whose rate to describe; None for the whole store.
        tool: the tool whose rate to describe; None for all tools.
        file: the file of answers; the default is in the archive's folder.
    """
    file = file or file_of_store(store.manifest, store.path)
    if file is None or not file.exists():
        return None
    for rate in reviewed_rates(_recorded(store), file):
        if (rate.metric, rate.server, rate.tool) == ("failure_rate", server, tool):
            ((plain,),) = store.sql(_BY_VERDICTS, params=[server, tool]).fetchall()
            return (
                f"failed because of the tool, reviewed: {100 * rate.rate:.1f}% "
                f"({100 * rate.low:.1f}\N{EN DASH}{100 * rate.high:.1f}, {rate.answers} answers); "
                f"by the verdicts: {100 * plain:.1f}%"
            )
    return None


_TOOL: Final = """
SELECT any_value(description), any_value(input_schema), any_value(output_schema) FROM tools
WHERE server IS NOT DISTINCT FROM $1 AND tool = $2 AND definition = $3
"""


def about(store: "Store", item: Item, *, longest: int = LONGEST) -> dict[str, Any]:
    """Return the facts about a call for a reviewer, with secrets masked and long texts cut.

    Keys: `call_id`, `server`, `tool`, `calls` (number in its group), `outcome`, `request`, `error`
    (text), `reply`, `stderr`, `description`, `input_schema`, `output_schema`, `input_schema_state`
    and its error, `others` (outcomes of identical calls, and what failures in the group have in
    common), `verdict`, `fault` and `certainty` (null where an answer was applied), and `rules`
    (titles of the matching rules).
    """
    found = store.show(item.call_id)
    call = found.call
    described = store.sql(_TOOL, params=[item.server, item.tool, item.definition]).fetchall()
    description, input_schema, output_schema = described[0] if described else (None,) * 3
    others = [
        found.repetition and contrasts.repetition(found.repetition),
        found.contrast and contrasts.sentence(found.contrast),
    ]
    facts = {
        "call_id": item.call_id,
        "server": item.server,
        "tool": item.tool,
        "calls": item.calls,
        "outcome": item.outcome,
        "request": item.arguments if item.arguments is not None else found.request,
        "error": item.error_text,
        "reply": item.response,
        "stderr": "\n".join(found.stderr.values()),
        "description": description,
        "input_schema": input_schema,
        "output_schema": output_schema,
        "input_schema_state": call["input_schema_state"],
        "input_schema_error": call["input_schema_error"],
        "others": [line for line in others if line],
        # Hide the previous answer, so that the new answer does not depend on it.
        "verdict": item.verdict if item.is_ours else None,
        "fault": item.fault if item.is_ours else None,
        "certainty": item.certainty if item.is_ours else None,
        "rules": [rule["title"] for rule in found.rules],
    }
    masked: dict[str, Any] = mask_value(facts)
    return {
        name: f"{value[:longest]} …" if isinstance(value, str) and len(value) > longest else value
        for name, value in masked.items()
    }


def to_fill(
    store: "Store",
    n: int,
    *,
    sample: bool,
    server: str | None,
    tool: str | None,
    who: str | None,
    reviews: str | Path | None,
) -> pl.DataFrame:
    """Return a table of calls with empty columns for answers, for `Store.review`."""
    session = open_session(store, reviews, who=who, server=server, tool=tool)
    if sample:
        session.ensure_sample(n)
    shown = session.next_items(n, mode="sample" if sample else "largest")
    return pl.DataFrame([_row(item) for item in shown], schema=_COLUMNS, orient="row")


_COLUMNS: Final = {
    "call_id": pl.String,
    "server": pl.String,
    "tool": pl.String,
    "calls": pl.Int64,
    "share": pl.Float64,
    "verdict": pl.String,
    "fault": pl.String,
    "certainty": pl.Float64,
    "request": pl.String,
    "reply": pl.String,
    "answer": pl.String,
    "group": pl.Boolean,
    "why": pl.String,
}


def _row(item: Item) -> tuple[Any, ...]:
    texts = mask_value([item.arguments, item.error_text or item.response])
    return (
        *(item.call_id, item.server, item.tool, item.calls, item.share),
        *(item.verdict, item.fault, item.certainty),
        *(text and text[:LONGEST] for text in texts),
        *(None, False, None),
    )


def save(
    store: "Store", filled: pl.DataFrame, *, who: str | None, reviews: str | Path | None
) -> int:
    """Save the answers in a filled table, for `Store.answer`; skip rows without an answer."""
    missing = {"call_id", "answer"} - set(filled.columns)
    if missing:
        raise UsageError(f"the table has no column {' and '.join(sorted(missing))}")
    session = open_session(store, reviews, who=who)
    given = {row["call_id"]: row for row in _answered(filled)}
    found = items.of_calls(session.store, list(given))
    if unknown := given.keys() - {item.call_id for item in found}:
        raise UsageError(f"the store has no call {min(unknown)!r}")
    for item in found:
        row = given[item.call_id]
        session.answer(item, row["answer"], why=row.get("why") or "", group=bool(row.get("group")))
    return len(found)


def _answered(filled: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(filled.iter_rows(named=True)):
        if row["answer"]:
            answer = KEYS.get(row["answer"], row["answer"])
            if answer not in ANSWERS:
                known = ", ".join(f"{key} {name}" for key, name in KEYS.items())
                raise UsageError(f"row {number}: {answer!r} is not an answer; known are {known}")
            yield row | {"answer": answer}
