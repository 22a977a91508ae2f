"""Formats an overview as text for the terminal's width."""

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mcptally.errors import as_argument
from mcptally.importers.detect import recognised_contents
from mcptally.output.overview.inputs import PATTERNS
from mcptally.plural import count
from mcptally.redaction.display import as_message

_UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def screen(
    paths: Sequence[str], answer: Mapping[str, Any], store: Path, page: Path, *, width: int = 80
) -> str:
    """Return the overview as text; only the commands at its end may be wider than `width`."""
    calls = (
        count(answer["calls"], "call"),
        f"to {count(answer['tools'], 'tool')}",
        f"on {count(answer['servers'], 'server')}",
        f"in {count(answer['sessions'], 'session')}",
    )
    read = (*_read(answer), _span(answer["first"], answer["last"]))
    head = [
        *(as_message(line) for line in answer["unread"]),
        *_skipped(answer["skipped"], width),
        " ".join(calls),
        answer["headline"],
    ]
    lines = list(_wrapped(f"{', '.join(paths)}: {', '.join(map(_together, read))}", width))
    lines += [_cut(line, width) for line in head]
    lines += _wrapped(answer["reviewed"] or "", width)
    lines += _rest(answer["rest"], width)
    for number, finding in enumerate(answer["findings"], 1):
        lines += _finding(number, finding, width)
    if not answer["findings"]:
        lines.append(_no_finding(answer))
    return "\n".join([*lines, *_next(answer, store, page), ""])


def as_json(paths: Sequence[str], answer: Mapping[str, Any], store: Path, page: Path) -> str:
    """Return the overview as a JSON object, with the same texts as the screen."""
    where = {"paths": list(paths), "store": str(store), "report": str(page)}
    return f"{json.dumps(where | dict(answer), indent=2, ensure_ascii=False)}\n"


def skipped(answer: Mapping[str, Any]) -> str:
    """Return a text about which files were skipped, why, and how formats are recognised."""
    lines = [as_message(f"{path}: {why}").replace("\n", " ") for path, why in answer["skipped"]]
    if others := [Path(path).name for path in answer["other_names"]]:
        more = f" and {count(len(others) - _NAMED)} more" if len(others) > _NAMED else ""
        lines.append(
            f"{count(len(others), 'file')} not opened because of the name: "
            f"{as_message(', '.join(others[:_NAMED]))}{more}".replace("\n", " ")
        )
    if not lines:
        return "no file was skipped\n"
    wanted = [f"  {name}: {what}" for name, what in recognised_contents().items()]
    names = f"names looked for, also with .gz and .zst: {', '.join(PATTERNS)}"
    return "\n".join([*lines, names, "contents looked for:", *wanted, ""])


_NAMED: Final = 20
"""Maximum number of unopened files that are listed by name."""


def _skipped(files: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield a line with the number of skipped files and the first of their names."""
    if files:
        names = ", ".join(as_message(Path(path).name).replace("\n", " ") for path, _ in files)
        yield _cut(f"skipped: {count(len(files), 'file')} (--skipped says why): {names}", width)


def _read(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield phrases about the files that were read and the files that were skipped."""
    if answer["transcripts"]:
        yield count(answer["transcripts"], "transcript")
    if answer["logs"]:
        yield count(answer["logs"], "imported log")
    unit = next(((size, name) for size, name in _UNITS if answer["bytes"] >= size), (1, "bytes"))
    yield f"{answer['bytes'] / unit[0]:,.0f} {unit[1]}"
    if answer["unused_lines"]:
        yield f"{count(answer['unused_lines'], 'line')} not imported"


def _span(first: str, last: str) -> str:
    if first == last:
        return first if first.startswith("unknown") else f"{first} UTC"
    if last.startswith(first[:11]):
        return f"{first} to {last.removeprefix(first[:11])} UTC"
    return f"{first[:10]} to {last[:10]}"


def _rest(rest: Mapping[str, int], width: int) -> Iterator[str]:
    """Yield lines that count failed calls by cause, the most frequent first, and unclear calls.

    Everything is on one line if it fits into `width`.
    """
    causes = sorted((cause for cause in rest if rest[cause]), key=lambda cause: -rest[cause])
    faults = ", ".join(
        _together(f"{cause} {rest[cause]:,}") for cause in causes if cause not in _NOT_FAILED
    )
    others = [f"{kind}: {rest[kind]:,}" for kind in _NOT_FAILED if rest[kind]]
    parts = [part for part in (faults and f"fault: {faults}", *others) if part]
    line = "; ".join(parts)
    for each in [line] if len(line) <= width else parts:
        yield from _wrapped(each, width)


_NOT_FAILED: Final = ("unfinished", "outcome unknown")
_JOINT: Final = "\N{NO-BREAK SPACE}"
"""Joins words that `_wrapped` must keep on the same line."""


def _together(text: str) -> str:
    """Join the words of a phrase, so that `_wrapped` keeps them on one line."""
    return text.replace(" ", _JOINT)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Wrap text into lines of at most `width` characters; longer words are not broken."""
    for line in textwrap.wrap(
        text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ):
        yield line.replace(_JOINT, " ")


def _no_finding(answer: Mapping[str, Any]) -> str:
    """Return the text that the screen shows if there are no findings.

    It mentions failed requests that name no tool, because findings do not cover them.
    """
    failed = answer["calls"] - answer["ok"] - sum(answer["rest"][kind] for kind in _NOT_FAILED)
    if failed:
        return f"No tool has a problem: the {count(failed, 'failed call')} named none."
    what = "No problem was found" if answer["calls"] else "No tool call was recorded"
    return f"{what}{' in what could be read' if answer['unread'] else ''}."


def _finding(number: int, finding: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield a finding's lines, wrapped between words; the example takes at most two lines."""
    *said, example = finding["lines"]
    first = f"{number}. "
    for line in said:
        yield from textwrap.wrap(
            line,
            width,
            initial_indent=first,
            subsequent_indent="   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        first = "   "
    shown, *more = textwrap.wrap(example, width - 3, break_on_hyphens=False)
    yield f"   {shown}"
    if more:
        yield _cut(f"   {' '.join(more)}", width)


def _next(answer: Mapping[str, Any], store: Path, page: Path) -> Iterator[str]:
    """Yield the report's path and three commands. The first command is about the first finding."""
    place = _path(store)
    call = answer["findings"][0]["call_id"] if answer["findings"] else None
    yield f"report: {_path(page)}"
    commands = [
        f"mcptally show {place} {call}" if call else f"mcptally query {place} servers",
        f"mcptally query {place} {'priorities' if answer['findings'] else 'server_scores'}",
        f"mcptally explore {place} --open",
    ]
    yield f"next:   {commands[0]}"
    yield from (f"        {command}" for command in commands[1:])


def _path(path: Path) -> str:
    """Return a path quoted for a shell, with `~` for the home folder."""
    try:
        rest = path.relative_to(Path.home())
    except (ValueError, RuntimeError):
        return as_argument(path)
    return f"~/{shlex.quote(rest.as_posix())}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
