"""Writes answers as labels, in the format of the labelled files in mcptally's tests."""

import json
from collections.abc import Iterator
from typing import Any, Final

from mcptally.redaction.display import mask_text
from mcptally.review.answers import CANNOT_TELL, NOT_AN_ERROR, Answer, CallKey
from mcptally.review.apply import verdict_of
from mcptally.review.sample import ReviewedStore
from mcptally.review.settled import Settled

LONGEST: Final = 2000
"""Maximum number of characters of an exported text."""
_TEXTS: Final = """
SELECT recording, seq, dir, "index", coalesce(error_text, text) AS text, error_code, outcome
FROM calls WHERE recording IN (SELECT unnest($1)) AND seq IN (SELECT unnest($2))
"""


def labels(store: ReviewedStore, settled: Settled) -> Iterator[str]:
    """Yield a JSON line per settled answer: verdict, fault, and the call's masked error text.

    Arguments, names of recordings and reviewers, and the reviewers' reasons are left out.
    """
    answers = settled.calls
    rows = store.sql(
        _TEXTS, params=[[key.recording for key in answers], [key.seq for key in answers]]
    ).fetchall()
    texts = {CallKey(*row[:4]): row[4:] for row in rows}
    for number, key in enumerate(sorted(answers.keys() & texts.keys())):
        label = _label(answers[key], *texts[key])
        yield json.dumps({"id": f"R{number:04d}", **label}, ensure_ascii=False) + "\n"


def _label(answer: Answer, text: str | None, code: int | None, outcome: str) -> dict[str, Any]:
    is_failure = answer.answer != NOT_AN_ERROR
    # Calls that counted as errors before the review was applied still count as errors.
    is_marked = outcome in ("tool_error", "protocol_error")
    return {
        "server": answer.server,
        "tool": answer.tool,
        "text": None if text is None else mask_text(text)[:LONGEST],
        "is_error": is_marked,
        "channel": "protocol" if outcome == "protocol_error" else "tool",
        "code": code,
        "hidden": is_failure and not is_marked,
        "verdict": verdict_of(answer.answer) or "not_error",
        "fault": answer.answer if answer.answer not in (NOT_AN_ERROR, CANNOT_TELL) else None,
        "source": "mcptally review",
    }
