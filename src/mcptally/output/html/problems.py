"""Describes rows of `priorities` in words, for the terminal, the page and MCP."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcptally.output.html.text import interval, moment, name, percent, shown
from mcptally.plural import count
from mcptally.tables.outcomes import Fault
from mcptally.tables.values import certain, claim, first_seen
from mcptally.verdict.error_text import hides_exception

TITLES: Final[Mapping[str, str]] = {
    "worse": "got worse",
    "not_started": "never started",
    "not_connected": "never connected",
    "start": "failed starts",
    "crash": "crashes",
    "noise": "output on stdout that is not MCP",
    "tool_failures": "tool failures",
    "misconfigured": "misconfigured",
    "unavailable": "service unavailable",
    "account": "rejected credentials, permissions or quota",
    "client": "needs a client feature that was missing",
    "caller": "refused by the server",
    "unmarked": "errors not marked as errors",
    "unclear": "failures of unclear cause",
    "contract": "results break the output schema",
    "drift": "breaking definition change",
}
"""Maps kinds of problem to titles."""

RANKING: Final = (
    "Ranked by affected calls, of which those of one session count with their square root, and by "
    "the share of calls that fail. Failures of the tool, the network and upstream weigh most, "
    "refused calls least."
)

NO_TEXT: Final = "(no text: "
"""Prefix of the template of failures without a text; the outcome follows."""

_MAX_NAMES: Final = 3


def names(values: Sequence[str | None], noun: str, most: int = _MAX_NAMES) -> str:
    """Return the first few names, followed by the number of further names."""
    listed = [name(value) for value in values[:most]]
    more = len(values) - len(listed)
    if not more:
        return ", ".join(listed)
    return f"{', '.join(listed)} and {count(more, f'other {noun}')}"


_CLAIMS: Final = frozenset({"misconfigured", "unavailable", "account", "client"})
"""Kinds of problem whose titles name a cause."""


_SYMPTOMS: Final[Mapping[str, str]] = {
    "host_name": "host name not found",
    "locked": "database locked",
    "refused": "connection refused",
    "server_error": "HTTP 5xx from a service",
    "timeout": "timeout",
    "lost": "connection lost",
    "malformed": "malformed reply from a service",
    "denied": "access denied",
    "unreachable": "service not reached",
}
"""Maps what an outage's error texts report (`_symptom.sql`) to titles."""


def title(row: Mapping[str, Any]) -> str:
    """Return a problem's title, preceded by "probably" if the cause that it names is uncertain."""
    if row["kind"] == "unavailable" and row["symptoms"]:
        mostly = "mostly " if row["other_symptoms"] else ""
        return f"{mostly}{' or '.join(_SYMPTOMS[each] for each in row['symptoms'])}"
    if row["kind"] == "tool_failures" and row["reason"] == "server_crash":
        return TITLES["crash"]
    if row["kind"] == "client" and row["reason"] == "http_refused":
        return "HTTP requests refused"
    probably = "probably " if row["uncertain"] and row["kind"] in _CLAIMS else ""
    return f"{probably}{TITLES[row['kind']]}"


_LIVES: Final[Mapping[str, str]] = {
    "not_started": "start",
    "start": "start",
    "crash": "start",
    "noise": "line",
    "not_connected": "HTTP request",
}
"""Maps kinds of problem in a server's life cycle to the counted unit."""


_PROBED: Final = "on newer clients' server/discover"


def subject(row: Mapping[str, Any]) -> str:
    """Return the names of the affected servers and tools."""
    tools = row["tools"] or ()
    most = min(row["prominent"] or _MAX_NAMES, _MAX_NAMES)
    about = f": {names(tools, 'tool', most)}" if tools else ""
    return f"{names(row['servers'], 'server')}{about}"


def number(row: Mapping[str, Any]) -> str:
    """Return the number of affected calls out of all calls."""
    if row["kind"] in _LIVES:
        # The title of a problem with failed starts names the unit.
        total = (
            f"{row['calls']:,}"
            if row["kind"] == "start"
            else count(row["calls"], _LIVES[row["kind"]])
        )
        has_reason = row["reason"] is not None and row["kind"] != "crash"
        why = f" ({row['reason'].replace('_', ' ')})" if has_reason else ""
        failed = " failed" if row["kind"] in ("not_started", "not_connected") else ""
        probed = f"; {row['probed']:,} of them {_PROBED}" if row["probed"] else ""
        if row["probed"] == row["affected"]:
            probed = f", {_PROBED}"
        idle = ", between requests" if row["kind"] == "crash" else ""
        during = f", during {row['method']}" if row["method"] else idle
        return f"{row['affected']:,} of {total}{failed}{why}{during}{probed}"
    if row["kind"] == "drift":
        return f"{count(row['calls'], 'call')} since"
    calls = row["calls"]
    none = f"; none of the {calls:,} worked" if row["ok"] == 0 and calls > row["affected"] else ""
    return f"{row['affected']:,} of {count(calls, 'call')}{none}"


def blame(row: Mapping[str, Any]) -> str:
    """Return who is at fault for a problem, and with what certainty."""
    named = f"{claim(row)}{_look(row)}"
    if row["kind"] == "unmarked":
        marked = certain(row["hidden_certainty"])
        return f"the tool does not mark them as errors{marked}; their cause: {named}"
    also = f"; {row['unmarked']:,} not marked as errors" if row["unmarked"] else ""
    return f"fault: {named}{also}"


def _look(row: Mapping[str, Any]) -> str:
    """Return what to check if the fault is uncertain or is not the server's."""
    if "not_connected" in (row["kind"], row["reason"]):
        return "; check the server's URL, and whether it runs"
    if row["kind"] in _LIVES:
        return ", in how it starts the server" if row["fault"] == Fault.CLIENT else ""
    if row["fault"] == Fault.UPSTREAM and row["uncertain"] and row["ok"] == 0:
        return _NEVER_REACHED
    if row["fault"] is None or (row["uncertain"] and row["reason"] != "server_policy"):
        return f"; {_LOOK}"
    return ""


_NEVER_REACHED: Final = "; no call ever reached it, so check the address in the server's settings"
_LOOK: Final = "check the example"


def onset(row: Mapping[str, Any]) -> str:
    """Return when the problem started or was first seen; empty if unknown."""
    if row["since"] is not None:
        other = ", when other clients called" if row["client_changed"] else ""
        return f"since {moment(row['since'])} UTC{other}"
    seen = first_seen(row)
    return f"{seen} UTC" if seen.startswith("first") else seen


def share(row: Mapping[str, Any]) -> str:
    """Return the share of affected calls with its interval, or that share for each server."""
    if len(row["servers"]) > 1 and row["server_rates"]:
        rates = sorted(zip(row["server_rates"], map(name, row["servers"]), strict=True))[::-1]
        shown_rates = [percent(min(1.0, rate)) for rate, _ in rates]
        if len(set(shown_rates)) == 1:
            return f"{shown_rates[0]} at each server"
        listed = [
            f"{server} {share}" for (_, server), share in zip(rates, shown_rates, strict=True)
        ]
        if len(listed) > _MAX_NAMES + 1:
            listed[_MAX_NAMES:] = [f"others {shown_rates[-1]} to {shown_rates[_MAX_NAMES]}"]
        return f"by server: {', '.join(listed)}"
    if row["rate_low"] is None:
        return "" if row["rate"] is None else percent(min(1.0, row["rate"]))
    thin = ", too little data" if row["insufficient_data"] else ""
    ends = interval(row["rate_low"], row["rate_high"])
    return f"{percent(min(1.0, row['rate']))} (95% interval {ends}{thin})"


_BREAK_SCHEMA: Final = 0.5
"""Minimum share of affected calls with a schema violation for violations to be mentioned."""


def inputs(row: Mapping[str, Any]) -> str:
    """Return phrases about requests that violate the input schema and about unknown tools."""
    said = []
    broken, unlisted, calls = row["invalid_inputs"] or 0, row["unlisted_calls"], row["affected"]
    if broken and broken >= _BREAK_SCHEMA * calls:
        where = f"{row['input_path']} " if row["input_path"] else "the object "
        error = shown(f"{where}{row['input_error']}", _MAX_ERROR)
        said.append(
            f"{_of(broken, calls, 'breaks', 'break')} the input schema, most often: {error}"
        )
    # The problem's line on the page does not name the unknown tools, so name them here.
    if unlisted:
        tools = "a tool" if len(row["unlisted"]) == 1 else "tools"
        said.append(
            f"{_of(unlisted, calls, 'is', 'are')} to {tools} that the server does not have: "
            f"{names(row['unlisted'], 'name')}"
        )
    return "; ".join(said)


def _of(part: int, calls: int, one: str, many: str) -> str:
    if part == calls:
        return f"all calls {many}"
    return f"{part:,} of these calls {one if part == 1 else many}"


_MAX_ERROR: Final = 100


def evidence(row: Mapping[str, Any]) -> str:
    """Return the numbers behind a problem: share, interval, schema, sessions and messages."""
    parts = [share(row), inputs(row)]
    if row["sessions"]:
        parts.append(f"in {count(row['sessions'], 'session')}")
    if (row["templates"] or 0) > 1:
        parts.append(f"{count(row['templates'], 'different message')}")
    return "; ".join(filter(None, parts))


def statement(row: Mapping[str, Any]) -> str:
    """Return a sentence about a problem: its title, frequency, fault and onset."""
    said = (f"{title(row)}, {number(row)}", blame(row), onset(row))
    return "; ".join(filter(None, said))


def message(row: Mapping[str, Any], limit: int = 200) -> str | None:
    """Return a problem's most frequent message, and the exception that it hides, if any."""
    text = row["message"] or row["template"]
    if text is not None and text.startswith(NO_TEXT):
        text = _NEVER_ANSWERED.get(text, text)
        if row["exception"] is not None:
            text = f"{text} {row['exception']}"
    elif text is not None and row["exception"] is not None and hides_exception(text):
        text = f"{text}; on stderr: {row['exception']}"
    return None if text is None else shown(text, limit)


_NEVER_ANSWERED: Final = {
    f"{NO_TEXT}no_response)": "(never answered)",
    f"{NO_TEXT}timeout)": "(not answered before the client's time limit)",
}
"""Maps templates of calls without an answer to words."""


def affected(row: Mapping[str, Any]) -> str:
    """Return the SQL condition for the affected calls; empty if unknown."""
    if row["cause"] is None:
        return ""
    return f"call_id IN (SELECT call_id FROM affected_calls WHERE cause = '{row['cause']}')"
