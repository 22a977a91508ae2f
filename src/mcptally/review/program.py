"""Asks an external program whose fault calls are.

The program gets an item as JSON on its stdin, and prints the answer on its stdout.
"""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mcptally.errors import McptallyError, UsageError
from mcptally.review.answers import ANSWERS, KEYS
from mcptally.review.items import Item
from mcptally.review.session import Mode, Session

SECONDS: Final = 120.0
"""Maximum seconds that a program may take for one item."""


class Reply(NamedTuple):
    """A program's answer about a call."""

    answer: str
    why: str


def command_of(text: str) -> list[str]:
    """Split a command line into words.

    Raises:
        UsageError: a quote is not closed, or the command line is empty.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--with {text!r}: {error}") from error
    if not words:
        raise UsageError("--with needs a command")
    return words


def name_of(command: Sequence[str]) -> str:
    """Return the name under which a program's answers are stored."""
    return f"program {Path(command[0]).name}"


def ask(command: Sequence[str], about: Mapping[str, Any], *, seconds: float = SECONDS) -> Reply:
    """Run a program and return its answer about a call.

    Args:
        command: the program and its arguments.
        about: the item to send, without secrets.
        seconds: maximum time to wait, in seconds.

    Raises:
        UsageError: there is no such program.
        McptallyError: the program fails, takes too long, or prints no answer.
    """
    question = json.dumps({**about, "answers": list(ANSWERS)}, default=str)
    where = f"{shlex.join(command)} (call {about['call_id']})"
    try:
        done = subprocess.run(
            command, input=question.encode(), capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise McptallyError(f"{where}: no answer within {seconds:g} s") from error
    except OSError as error:
        raise UsageError(f"{where}: cannot be started: {error.strerror or error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = f": {said[-1]}" if said else ""
        raise McptallyError(f"{where}: ended with exit code {done.returncode}{last}")
    return _parse(done.stdout.decode("utf-8", "replace").strip(), where)


def _parse(text: str, where: str) -> Reply:
    """Parse an answer: a word or key followed by a reason, or a JSON object (`answer`, `why`)."""
    try:
        value = json.loads(text) if text.startswith(("{", '"')) else text
    except ValueError:
        value = text
    if isinstance(value, dict):
        word, why = str(value.get("answer") or ""), str(value.get("why") or "")
    else:
        word, _, why = str(value).partition(" ")
    answer = KEYS.get(word.strip(), word.strip())
    if answer not in ANSWERS:
        raise McptallyError(
            f"{where}: printed {text[:80]!r}; expected one of {', '.join(ANSWERS)}, or JSON "
            'such as {"answer": "tool", "why": "…"}'
        )
    return Reply(answer, why.strip())


def items_for(session: Session, n: int, mode: Mode) -> list[Item]:
    """Return the next items for a program to answer.

    Items that people have answered come first, so that agreement can be measured.
    """
    common = session.next_items(n, mode=mode, second=True)
    return (common + session.next_items(n, mode=mode))[:n]
