"""The command `mcptally review`: asks whose fault each failed call is, and estimates rates."""

import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcptally.cli.options import REVIEWER, REVIEWS, SERVER, STORE, TOOL, say
from mcptally.errors import UsageError
from mcptally.plural import count

if TYPE_CHECKING:
    from mcptally.analytics.store import Store
    from mcptally.review.items import Item
    from mcptally.review.session import Mode, Session

_HELP = (
    "c caller  a account  t tool  u upstream  n network  o not an error  ? cannot tell\n"
    "A and a key: all calls of this group    s skip    z undo    w a reason, then a key\n"
    "v view all of a cut call    q stop"
)


@click.command(name="review")
@STORE
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ask about a random sample of N calls and compute rates from it. Default: about the "
    "largest doubtful groups of failed calls, from which no rate can be computed.",
)
@SERVER
@TOOL
@REVIEWS
@REVIEWER
@click.option(
    "--second",
    is_flag=True,
    help="Ask only about calls that someone else answered, to measure agreement.",
)
@click.option(
    "--with",
    "program",
    metavar="COMMAND",
    help="Let this command answer: it gets each call as redacted JSON on stdin and prints an "
    "answer.",
)
@click.option(
    "--items",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="With --with: calls to ask about.",
)
@click.option(
    "--status", is_flag=True, help="Print progress, agreement and rates, and ask nothing."
)
@click.option(
    "--rule",
    is_flag=True,
    help="Propose rows for a rule file from the answers, and show their effects.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write the answers as labels without payloads; - for stdout.",
)
def command(
    store: Path,
    *,
    sample: int | None,
    server: str | None,
    tool: str | None,
    reviews: Path | None,
    who: str | None,
    second: bool,
    program: str | None,
    items: int,
    status: bool,
    rule: bool,
    export: Path | None,
) -> None:
    """Say whose fault failed calls are, and get rates corrected for wrong verdicts.

    The command shows one call after another: request, reply, stderr, tool, similar calls, and our
    verdict. One key answers: c caller, a account, t tool, u upstream, n network, o not an error, ?
    cannot tell. Without a terminal, each line of stdin is a key and an optional reason. Answers are
    kept in reviews.jsonl beside the archive; the next mcptally score applies them.

    \b
    Examples:
      mcptally review store
      mcptally review store --sample 40
      mcptally review store --status
      mcptally review store --with ./my-reader
    """
    from mcptally.analytics.reviewing import open_session
    from mcptally.analytics.store import open_store

    if sum([status, rule, export is not None, program is not None]) > 1:
        raise UsageError("--status, --rule, --export and --with are different things; give one")
    opened = open_store(store)
    session = open_session(opened, reviews, who=who, server=server, tool=tool)
    if export is not None:
        _export(session, export)
    elif rule:
        _propose(opened, session)
    elif status:
        sys.stdout.write("".join(f"{line}\n" for line in _status(session)))
    else:
        mode: Mode = "sample" if sample else "largest"
        if sample:
            _say_sample(session, sample)
        if program:
            _ask_program(opened, session, program, mode, items, who)
        else:
            _ask_person(opened, session, mode, second=second)
        sys.stderr.write("".join(f"{line}\n" for line in _after(session, mode)))


def _say_sample(session: "Session", n: int) -> None:
    from mcptally.review import estimates
    from mcptally.review import sample as samples

    known = session.sample()
    drawn = session.ensure_sample(n)
    plan = samples.plan(
        session.store, max(n, samples.LEAST), server=session.server, tool=session.tool
    )
    if known is not None and known.id != drawn.id and estimates.missing(known, session.settled):
        sys.stderr.write(f"the sample of {samples.age(known)} is not finished; this is a new one\n")
    sys.stderr.write(
        f"{count(len(drawn.drawn), 'answer')}: failure rate within about "
        f"±{100 * plan.half_width:.0f} points\n"
    )


def _ask_person(store: "Store", session: "Session", mode: "Mode", *, second: bool) -> None:
    """Show items and read answers until no item is left or the reviewer quits."""
    reader = _keys() if sys.stdin.isatty() else _lines()
    while shown := session.next_items(mode=mode, second=second):
        sys.stdout.write(_described(store, session, shown[0], mode))
        sys.stdout.flush()
        whole = functools.partial(_described, store, session, shown[0], mode, whole=True)
        if not _settle(session, shown[0], reader, whole):
            return


def _settle(
    session: "Session", item: "Item", reader: Iterator[tuple[str, str]], whole: Callable[[], str]
) -> bool:
    """Handle keys until the reviewer answers, skips, undoes or quits; return False if they quit."""
    from mcptally.review.answers import KEYS

    why, group = "", False
    for key, reason in reader:
        if key == "A":
            group = not group
        elif key == "w":
            why = reason
        elif key == "v":
            click.echo_via_pager(whole())
        elif key == "q":
            return False
        elif key == "s":
            session.skip(item)
            return True
        elif key == "z":
            undone = session.undo()
            say("nothing to undo" if undone is None else f"withdrawn: {undone.answer}")
            return True
        elif group and item.group is None:
            say("only failed calls have groups; answer about this call alone")
            group = False
        else:
            session.answer(item, KEYS[key], why=reason or why, group=group)
            return True
    return False


_ACTIONS = frozenset("catuno?szAwvq")


def _keys() -> Iterator[tuple[str, str]]:
    """Yield each key that is pressed. The key `w` comes with the reason that is typed after it."""
    # The signal handler of polars restarts interrupted system calls: Ctrl-C would not end a prompt.
    signal.siginterrupt(signal.SIGINT, True)
    while True:
        key = click.getchar()
        if key in ("\x03", "\x04"):
            yield "q", ""
        elif key == "w":
            yield "w", click.prompt("why", default="", show_default=False, err=True)
        elif key in _ACTIONS:
            yield key, ""
        else:
            sys.stderr.write(f"{_HELP}\n")


def _lines() -> Iterator[tuple[str, str]]:
    """Yield the key and the reason on each line of stdin.

    Raises:
        UsageError: a line does not start with a key. If the line were skipped, later answers would
            apply to other calls.
    """
    for number, line in enumerate(sys.stdin, 1):
        words = line.strip()
        if not words:
            continue
        keys, _, reason = words.partition(" ")
        if keys[0] == "A" and len(keys) == 1 and reason:
            keys, reason = f"A{reason[0]}", reason[1:].strip()
        if not all(key in _ACTIONS for key in keys) or len(keys.removeprefix("A")) != 1:
            raise UsageError(
                f"stdin:{number}: {words[:40]!r} is not an answer; write a key (c a t u n o ? s z "
                "v q, with A before it for the whole group) and a reason after a space"
            )
        if keys[0] == "A":
            yield "A", ""
        yield keys[-1], reason


def _described(
    store: "Store", session: "Session", item: "Item", mode: "Mode", *, whole: bool = False
) -> str:
    from mcptally.analytics.reviewing import about
    from mcptally.redaction.display import clean_lines

    progress = session.progress(mode)
    facts = about(store, item, longest=_WHOLE if whole else _SHOWN)
    lines = [
        "",
        f"[{progress.answered + 1} of {progress.total}] {item.server} {item.tool}: {item.outcome}"
        + (f", {count(item.calls, 'call')} of this group" if item.group else ""),
    ]
    if item.group and not item.sample:
        lines[-1] += f", {100 * item.share:.0f} % of the failed calls"
    # Do not show a failed call's reply: it is just the error text in a JSON envelope.
    for name in ("request", "error" if facts["error"] else "reply"):
        lines += _block(name, facts[name], whole=whole)
    for name in ("stderr", "description", "input_schema"):
        lines += _block(name.replace("_", " "), facts[name], whole=whole)
    if facts["input_schema_error"]:
        lines += _block("schema check", facts["input_schema_error"])
    for other in facts["others"]:
        lines += _block("others", other)
    lines += _block("our verdict", _ours(facts, reviewed=not item.is_ours))
    return clean_lines("\n".join(lines)) + f"\n{_HELP if progress.answered == 0 else ''}\n"


def _ours(facts: dict[str, Any], *, reviewed: bool) -> str:
    if facts["verdict"] is None:
        return "not shown: an answer was applied" if reviewed else "none: the call did not fail"
    certain = "" if facts["certainty"] is None else f", {facts['certainty']:.0f} % certain"
    why = "; ".join(facts["rules"][:3])
    return f"{facts['verdict']}, fault: {facts['fault'] or 'unknown'}{certain}" + (
        f"; {why}" if why else ""
    )


_SHOWN = 700
_LINES = 16
_WHOLE = 1_000_000


def _block(name: str, text: str | None, *, whole: bool = False) -> list[str]:
    """Return a text's lines under its name: all lines if `whole`, else the first `_LINES`."""
    if not text:
        return []
    lines = text.splitlines() or [""]
    if not whole and (len(lines) > _LINES or text.endswith(" …")):
        lines = [*lines[:_LINES], "(cut; v shows all)"]
    return [f"  {name if not place else '':<13} {line}" for place, line in enumerate(lines)]


def _ask_program(
    store: "Store", session: "Session", text: str, mode: "Mode", n: int, who: str | None
) -> None:
    from mcptally.analytics.reviewing import about
    from mcptally.review import program
    from mcptally.review.answers import Reviewer

    words = program.command_of(text)
    session.who, session.by = who or program.name_of(words), Reviewer.PROGRAM
    asked = program.items_for(session, n, mode)
    for item in asked:
        reply = program.ask(words, about(store, item))
        group = mode == "largest" and item.group is not None
        session.answer(item, reply.answer, why=reply.why, group=group)
    say(f"{session.who} answered {count(len(asked), 'call')}")


def _after(session: "Session", mode: "Mode") -> Iterator[str]:
    """Yield the lines to print after a review: its progress and suggested next commands."""
    from mcptally.review import words

    progress = session.progress(mode)
    yield f"answers: {session.path}"
    if mode == "sample":
        yield from words.rates(session)
    else:
        yield (
            f"answers decide {100 * progress.decided:.0f} % of the failed calls; the next 10 about "
            f"groups would decide {100 * progress.next_share:.0f} %"
        )
    yield "next: mcptally score applies the answers"


def _status(session: "Session") -> Iterator[str]:
    from mcptally.review import words

    yield f"answers: {session.path}"
    yield f"groups: {words.groups(session)}"
    yield from words.rates(session)
    yield from words.agreement(session)


def _export(session: "Session", path: Path) -> None:
    from mcptally.output.whole_file import whole_file
    from mcptally.review.export import labels

    text = "".join(labels(session.store, session.settled))
    if os.fspath(path) == "-":
        sys.stdout.write(text)
    else:
        whole_file(path, lambda file: file.write(text.encode()))
    say(f"{count(text.count(chr(10)), 'label')}")


def _propose(store: "Store", session: "Session") -> None:
    from mcptally.evaluation.rule_proposal import propose

    sys.stdout.write(propose(store, session.settled))
