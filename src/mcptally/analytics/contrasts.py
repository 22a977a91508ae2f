"""Writes sentences about what failing calls have in common, from the answer to `contrasts`."""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mcptally.redaction.display import clean_line, cut, mask_text
from mcptally.statistics.contrasts import MIN_CALLS

if TYPE_CHECKING:
    from mcptally.analytics.answer import Answer

MOST: Final = 0.5
"""Share of a group's failing calls from which the group counts as flaky, if their arguments worked
in other calls."""
_LONGEST: Final = 80
_UNQUOTED: Final = re.compile(r"-?\d{1,9}(\.\d{1,9})?|true|false", re.ASCII)

_TESTS: Final[Mapping[str, str]] = {
    "empty": "is empty",
    "blank": "is blank",
    "given": "is given",
    "invalid": "violate the input schema",
}
_OF_TEXT: Final = {"equals": "is", "ends": "ends in"}
_VALUES: Final[Mapping[tuple[str, str], str]] = {
    ("sign", "negative"): "is negative",
    ("sign", "positive"): "is positive",
    ("sign", "fraction"): "has decimals",
    ("items", "2"): "has two or more items",
    ("items", "11"): "has more than ten items",
    ("form", "number"): "is a number in a text",
    ("form", "url"): "is a URL",
    ("form", "path"): "is an absolute path",
    ("form", "date"): "is a date",
    ("form", "uuid"): "is a UUID",
    ("form", "email"): "is an email address",
    ("form", "non_ascii"): "has characters beyond ASCII",
    ("form", "lines"): "has several lines",
    ("form", "parent_path"): "has .. in its path",
}
_AROUND: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("previous", "equals"): (
        "the call before it is to {value}",
        "the call before it is not to {value}",
    ),
    ("previous", "failed"): (
        "another tool failed just before",
        "no other tool failed just before",
    ),
    ("place", "first"): ("it is the first call of its session", "calls came before it"),
    ("place", "late"): ("ten or more calls came before it", "fewer than ten calls came before it"),
    ("concurrent", "open"): ("another call is open", "no other call is open"),
    ("others", "fail"): (
        "other tools of the server fail in the same minute",
        "no other tool of the server fails in the same minute",
    ),
    ("latency", "at_least"): (
        "the call takes {value} s or more",
        "the call takes less than {value} s",
    ),
    ("hour", "equals"): ("the hour is {value} (UTC)", "the hour is not {value} (UTC)"),
}
"""Maps each fact about a call's context (aspect, test) to two phrases: the fact is true, or false.
"""

_NEGATIONS: Final = (
    ("is ", "is not "),
    ("ends ", "does not end "),
    ("has ", "does not have "),
    ("violate ", "satisfy "),
)
_ASPECTS: Final[Mapping[str, str]] = {
    "client": "the client",
    "client_version": "the version of {path}",
    "model": "the model",
    "server_version": "the server's version",
    "protocol_version": "the protocol version",
    "transport": "the transport",
    "request_bytes": "the request",
}


_SIGNS: Final = frozenset({"time", "place", "previous"})
"""Aspects that are rarely a cause, but show that something changed or happened before the call."""


def fact(row: Mapping[str, Any], prefix: str = "") -> str:
    """Return a phrase for the fact in a row of `contrasts`, such as "`zone` is empty".

    Args:
        row: the row.
        prefix: prefix of the columns that describe the fact: empty, or `and_` for the second fact.
    """
    aspect, path, test, value, absent = (
        row[prefix + each] for each in ("aspect", "path", "test", "value", "absent")
    )
    if (aspect, test) == ("schema", "at"):
        where = f"{'not ' if absent else ''}at `{_shown(path)}`"
        return f"the first violation of the input schema is {where}"
    if aspect == "time":
        return f"the call was made {'before' if absent else 'at or after'} {value} UTC"
    if words := _AROUND.get((aspect, test)):
        return words[absent].format(value=_shown(value))
    about = (
        f"`{_shown(path)}`"
        if aspect == "argument" and path
        else "a member of the arguments"
        if aspect == "argument"
        else "the arguments"
        if aspect == "schema"
        else _ASPECTS[aspect].format(path=_shown(path or ""))
    )
    if test == "type":
        what = f"is {value}" if value == "null" else f"is {_a(value)}"
    elif test == "at_least":
        unit = " bytes" if aspect == "request_bytes" else ""
        what = f"has {int(value):,}{unit} or more" if unit else f"is {int(value):,} or more"
    elif test == "longer":
        what = f"has more than {int(value):,} characters"
    elif test in _OF_TEXT:
        text = _masked(path, value) if aspect == "argument" else _shown(value)
        what = f"{_OF_TEXT[test]} {text}"
    else:
        what = _VALUES.get((test, value)) or _TESTS[test]
    if absent:
        old, new = next(pair for pair in _NEGATIONS if what.startswith(pair[0]))
        what = new + what.removeprefix(old)
    return f"{about} {what}{'' if prefix else _or_others(path, row['other_values'] or [])}"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def sentence(row: Mapping[str, Any], way: str = "this way") -> str | None:
    """Return what distinguishes failing calls: "when `a` is empty: 6 of 6 calls fail this way; …".

    The numbers of calls include all calls to the tool, also those with other errors. In a large
    archive, they include only a sample of sessions, and the sentence says so. If nothing
    distinguishes the failing calls, the sentence states whether most of their arguments worked in
    other calls.

    Args:
        row: a row of the answer to `contrasts`.
        way: the phrase for failing with the group's error.
    """
    if row["test"] is None:
        worked, calls = row["also_worked"], row["calls"]
        if worked < calls * MOST:
            return None
        share = f"all {calls:,}" if worked == calls else f"{worked:,} of {calls:,}"
        return f"the arguments of {share} failing calls work in other calls"
    facts = [fact(row)] + ([fact(row, "and_")] if row["and_test"] else [])
    if row["offered"] and not row["absent"]:
        facts[0] += " (a value that the schema offers)"
    failed, calls, worked = (
        row[each] or 0 for each in ("failed_with", "calls_with", "worked_with")
    )
    if {row["aspect"], row["and_aspect"]} & _SIGNS:
        facts[-1] += ", perhaps because of something earlier"
    some = "1 works" if worked == 1 else f"{worked:,} work" if worked else "none works"
    others = "" if failed == calls else f" and {some}"
    return (
        f"when {' and '.join(facts)}: {failed:,} of {calls:,} calls fail {way}{others}; "
        f"otherwise {row['failed_without'] or 0:,} of {row['calls_without'] or 0:,}"
        f"{' (in a sample of the sessions)' if row['sampled'] else ''}"
    )


def _or_others(path: str, values: Sequence[str]) -> str:
    """Return the end of "`a` is 'x', 'y' or one of 3 other values"."""
    named = [_masked(path, value) for value in values[: 1 if len(values) > 2 else 2]]
    if more := len(values) - len(named):
        named.append(f"one of {more:,} other values")
    return "".join([*(f", {each}" for each in named[:-1]), *(f" or {each}" for each in named[-1:])])


Contrasts = Mapping[tuple[str | None, ...], Mapping[str, Any]]
"""Maps server, tool, template and verdict to the row of their group in the answer to `contrasts`.
"""


def by_group(found: Sequence[Mapping[str, Any]]) -> Contrasts:
    """Map each group (server, tool, template, verdict) to its row in the answer to `contrasts`."""
    return {(row["server"], row["tool"], row["template"], row["verdict"]): row for row in found}


OF_TOOLS: Final = "FROM _contrasts_of(?)"
"""The rows of `contrasts` about tools: the SELECT's parameter is a list of `tool_key`."""


def tool_key(server: str | None, tool: str | None) -> str:
    """Return the key by which the parameter of `OF_TOOLS` names a server's tool."""
    return f"{server or ''}\0{tool or ''}"


def tools_of(problems: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of the tools, in rows of `priorities`, for which contrasts are possible."""
    return sorted(
        {
            tool_key(server, tool)
            for row in problems
            if row["affected"] >= MIN_CALLS and (row["ok"] or 0) >= MIN_CALLS
            for server, tool in itertools.product(row["servers"], row["tools"] or ())
        }
    )


def of_tools_with(
    problems: Sequence[Mapping[str, Any]], sql: "Callable[[str, list[Any]], Answer]"
) -> Contrasts:
    """Return the contrasts for those tools in `problems` that failed and worked often enough.

    Args:
        problems: rows of the answer to `priorities`.
        sql: runs a SELECT with parameters on the store, as `Store.sql` does.
    """
    tools = tools_of(problems)
    return by_group(sql(OF_TOOLS, [tools]).pl().to_dicts()) if tools else {}


def of_problem(row: Mapping[str, Any], shared: Contrasts) -> str | None:
    """Return a sentence on what distinguishes a problem's failing calls, or None.

    Args:
        row: a row of the answer to `priorities`.
        shared: the contrasts for the problem's tools.
    """
    of_many = len(row["servers"]) > 1, len(row["tools"] or ()) > 1
    if (found := row_of_problem(row, shared)) is None:
        return None
    words = sentence(found, "with the example's message")
    named = zip((found["server"], found["tool"]), of_many, strict=True)
    parts = [_shown(name) for name, is_one_of_many in named if is_one_of_many]
    return words and ", ".join([*parts, words])


def row_of_problem(row: Mapping[str, Any], shared: Contrasts) -> Mapping[str, Any] | None:
    """Return the contrast of the first tool of a problem that has one, or None.

    Args:
        row: a row of the answer to `priorities`.
        shared: the contrasts for the problem's tools.
    """
    for server, tool in itertools.product(row["servers"], row["tools"] or ()):
        if found := shared.get((server, tool, row["template"], row["verdict"])):
            return found
    return None


def repetition(row: Mapping[str, Any]) -> str | None:
    """Return a sentence on whether the same call always fails, or None if it is not repeated."""
    failed, calls, others = row["same_failed"], row["same_calls"], row["other_calls"]
    if failed == 0 or calls == 1:
        return None
    if failed < calls:
        return f"the same call works and fails ({failed:,} of {calls:,} fail)"
    rest = (
        f"others work ({row['other_worked']:,} of {others:,} calls)"
        if row["other_worked"]
        else "all others fail, too"
        if others
        else "no others were tried"
    )
    return f"these arguments fail every time ({failed:,} of {calls:,}); {rest}"


def is_masked(path: str, value: str) -> bool:
    """Return whether an argument's value must be masked when it is shown."""
    return _without_secret(path, value) != value


def _masked(path: str, value: str) -> str:
    """Return an argument's value for display, masked if the argument's name indicates a secret.

    The value is in quotes unless it looks like a number or a boolean.
    """
    masked = _without_secret(path, value)
    return masked if _UNQUOTED.fullmatch(masked) else repr(_shown(masked))


def _without_secret(path: str, value: str) -> str:
    member = path.rpartition(".")[2].removesuffix("[]")
    [masked] = json.loads(mask_text(json.dumps({member: value}))).values()
    return str(masked)


def _shown(text: str | None) -> str:
    return clean_line(cut(mask_text(text or "(none)"), _LONGEST))
