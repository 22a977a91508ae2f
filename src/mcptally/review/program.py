"""Asks a program about calls.

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
    """Return the words of a command line.

    Raises:
        UsageError: a quote is not closed, or there is no word.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--with {text!r}: {error}") from error
    if not words:
        raise UsageError("--with needs a command")
    return words


def name_of(command: Sequence[str]) -> str:
    """Return the reviewer name of a program."""
    return f"program {Path(command[0]).name}"


def ask(command: Sequence[str], about: Mapping[str, Any], *, seconds: float = SECONDS) -> Reply:
    """Return a program's answer for one call.

    Args:
        command: the program and its arguments; it runs once per call.
        about: the item to send, without secrets.
        seconds: maximum seconds to wait.

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
    """Return an answer given as a word or key with a reason, or as JSON (`answer`, `why`)."""
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
    """Return the next items for a program.

    Items answered by people come first, to measure agreement.
    """
    common = session.next_items(n, mode=mode, second=True)
    return (common + session.next_items(n, mode=mode))[:n]
