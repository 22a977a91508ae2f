"""Builds the pages of a review: one about its progress, and one per call to review."""

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from mcptally.analytics.reviewing import open_session
from mcptally.analytics.store import Store, retry_if_replaced
from mcptally.errors import UsageError
from mcptally.output.explore import call, parts
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html.text import name, shown
from mcptally.review import items, sample, words
from mcptally.review.answers import CANNOT_TELL, KEYS, NOT_AN_ERROR
from mcptally.review.items import Item
from mcptally.review.session import Session
from mcptally.tables.outcomes import FAULTS, OUTCOMES

SIZES: Final = (20, 40, 80, 160)
"""Sample sizes that the page offers."""
LONGEST_REASON: Final = 1000
_DEFINITION: Final = """
SELECT description, input_schema, output_schema, annotations FROM tools
WHERE server IS NOT DISTINCT FROM ? AND tool = ? AND definition = ? LIMIT 1
"""
_WORDS: Final = {str(fault): meaning for fault, meaning in FAULTS.items()} | {
    NOT_AN_ERROR: "the call worked",
    CANNOT_TELL: "an answer, too",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """The reviewer's choice of calls: mode, server and tool."""

    mode: Literal["largest", "sample"] = "largest"
    second: bool = False
    """Whether to show only calls that another reviewer has answered."""
    server: str | None = None
    tool: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Chosen":
        """Parse the parameters of an address or form."""
        return cls(
            "sample" if given.get("mode") == "sample" else "largest",
            bool(given.get("second")),
            given.get("server") or None,
            given.get("tool") or None,
        )

    def state(self) -> dict[str, str | None]:
        """Return the choice as URL parameters, which `Chosen.of` parses."""
        return {
            "mode": "sample" if self.mode == "sample" else None,
            "second": "1" if self.second else None,
            "server": self.server,
            "tool": self.tool,
        }


class Reviews:
    """The review of a store by the user of the browser.

    Args:
        store: the unmasked store.
        file: the file of answers; by default, the file in the archive's folder.
        who: the reviewer's name; by default, the user's name.
    """

    def __init__(self, store: Store, file: Path | None, who: str | None) -> None:
        self._store: Final = store
        self._file: Final = file
        self._who: Final = who
        self._lock: Final = threading.Lock()
        self._sessions: dict[tuple[str | None, str | None], Session] = {}

    def of(self, chosen: Chosen) -> Session:
        """Return the review session for the chosen calls, which remembers skipped items.

        Raises:
            UsageError: there is no such server or tool, or the file of answers is not writable.
        """
        key = (chosen.server, chosen.tool)
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = open_session(
                    self._store, self._file, who=self._who, server=key[0], tool=key[1]
                )
            return self._sessions[key]

    def following(self, links: Links, chosen: Chosen) -> str:
        """Return the address of the next call to review, or of the first page if none is left."""
        session = self.of(chosen)
        found = retry_if_replaced(
            [self._store], lambda: session.next_items(mode=chosen.mode, second=chosen.second)
        )
        if not found:
            return links.to("review", server=chosen.server, tool=chosen.tool)
        return links.to("review/call", call=found[0].call_id, **chosen.state())

    def answer(self, links: Links, given: Mapping[str, str]) -> str:
        """Save, skip or withdraw an answer; return the next page's address.

        Args:
            links: the addresses.
            given: the form's fields: `call`, `answer`, `why`, `group`, and the fields of `Chosen`.

        Raises:
            UsageError: the answer is invalid, or the file cannot be written.
        """
        chosen = Chosen.of(given)
        session = self.of(chosen)
        with self._lock:
            if given.get("answer") == "undo":
                return self._undone(links, session, chosen)
            item = session.item(given.get("call", ""))
            if given.get("answer") == "skip":
                session.skip(item)
            else:
                why = " ".join(given.get("why", "").split())[:LONGEST_REASON]
                group = bool(given.get("group"))
                session.answer(item, given.get("answer", ""), why=why, group=group)
        return self.following(links, chosen)

    def _undone(self, links: Links, session: Session, chosen: Chosen) -> str:
        row = session.undo()
        if row is None:
            raise UsageError(f"{session.who} has not answered yet")
        found = items.of_keys(session.store, [row.key])
        call_id = found[0].call_id if found else None
        return links.to("review/call" if call_id else "review", call=call_id, **chosen.state())

    def draw(self, links: Links, given: Mapping[str, str]) -> str:
        """Draw a sample; return the address of its first call.

        Raises:
            UsageError: the size is too small or not a number, or there are no calls.
        """
        chosen = dataclasses.replace(Chosen.of(given), mode="sample")
        size = given.get("n", "")
        if not (size.isdecimal() and len(size) < 9):
            raise UsageError(f"{size!r} is not a number of answers")
        session = self.of(chosen)
        with self._lock:
            session.ensure_sample(int(size))
        return self.following(links, chosen)


def page(reviews: Reviews, chosen: Chosen) -> Page:
    """Return a review's first page: decided calls, the sample, and the reviewers' agreement."""
    session = reviews.of(chosen)
    about = " ".join(name(one) for one in (chosen.server, chosen.tool) if one)
    return Page(
        "review",
        f"Review {about}".rstrip(),
        head={"file": shown(str(session.path), 300), "who": shown(session.who, 80)},
        sections=[
            Section(
                "largest",
                "Correct the largest groups",
                lambda: {"words": words.groups(session), "chosen": chosen},
            ),
            Section("sample", "Measure a rate", lambda: _sample(session, chosen)),
            Section(
                "agreement",
                "Second reviewers",
                lambda: {
                    "lines": [shown(line, 400) for line in words.agreement(session)],
                    "chosen": chosen,
                },
            ),
        ],
    )


def _sample(session: Session, chosen: Chosen) -> dict[str, Any]:
    """Return the state of the last sample, and the intervals to expect from new samples."""
    drawn = session.sample()
    plans = [sample.plan(session.store, n, server=session.server, tool=session.tool) for n in SIZES]
    return {
        "lines": [] if drawn is None else list(words.rates(session)),
        "left": drawn is not None and not session.rates(),
        "plans": list(zip(SIZES, plans, strict=True)),
        "chosen": chosen,
    }


def item_page(
    answers: Answers, links: Links, reviews: Reviews, wanted: str, chosen: Chosen
) -> Page:
    """Return the page that asks for a call's verdict.

    Raises:
        QueryError: no call has this id.
    """
    session = reviews.of(chosen)
    found = call.explained(answers, wanted)
    row = found.call
    item = retry_if_replaced([answers.recorded], lambda: session.item(row["call_id"]))
    return Page(
        "review_call",
        f"{shown(row['tool'] or row['method'], 90)} of {name(row['server'])}",
        about="review",
        crumbs=[("Review", links.to("review", server=chosen.server, tool=chosen.tool))],
        head=_head(session, item, row, chosen),
        sections=[
            Section("request", "Request", lambda: call.request_of(found)),
            Section("reply", "Reply", lambda: call.reply_of(found)),
            Section(
                "stderr", "stderr of the server around the call", lambda: call.stderr_of(found)
            ),
            Section("like", "What others got", lambda: call.similar_calls_of(answers, found)),
            Section("tool", "The tool", lambda: _definition(answers, item)),
            Section(
                "decided",
                "Our verdict and why",
                lambda: call.decided_of(found) if item.is_ours else None,
            ),
        ],
    )


def _head(session: Session, item: Item, row: Mapping[str, Any], chosen: Chosen) -> dict[str, Any]:
    progress = session.progress(chosen.mode)
    given = session.reviews.current().get((item.key, session.who))
    return {
        "row": row,
        "item": item,
        "chosen": chosen,
        "progress": progress,
        "given": None if given is None else given.answer.replace("_", " "),
        "choices": [(key, answer, _WORDS[answer]) for key, answer in KEYS.items()],
        "outcome": OUTCOMES[row["outcome"]],
    }


def _definition(answers: Answers, item: Item) -> str | None:
    rows = answers.sql(_DEFINITION, item.server, item.tool, item.definition).to_dicts()
    return parts.definition_text(rows[0]) if rows else None
