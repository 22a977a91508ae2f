"""Declares outcomes, verdicts, reasons and faults of calls: names, groups and wording.

All other code refers to these declarations. SQL uses them as macros: `_failed(outcome)` is true for
the outcomes of the group `failed`, and `_is_business(verdict)` for the verdict `business`.
"""

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

OUTCOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ok": "it was answered with a result",
        "hidden_error": (
            "it was answered with a result that reports an error but is not marked as one"
        ),
        "tool_error": "it was answered with a result marked as an error (isError)",
        "protocol_error": "it was answered with a JSON-RPC error",
        "input_required": "it was answered with a request for input; a later call continues",
        "task": "it was answered with a task whose end is not recorded",
        "poll": "it asked about a task; the call that started the task has the outcome",
        "unknown": "it was answered, but the imported log does not say whether with an error",
        "timeout": "it was never answered, and the client gave up after a time limit",
        "cancelled": "it was cancelled before an answer",
        "no_response": "it was never answered",
    }
)
"""Maps each outcome of a call to its description."""

MARKED_ERRORS: Final = ("tool_error", "protocol_error")
"""Outcomes of calls whose answer is marked as an error."""
ERRORS: Final = (*MARKED_ERRORS, "hidden_error")
"""Outcomes of calls whose answer reports an error, marked or not."""
UNANSWERED: Final = ("timeout", "no_response")
FAILED: Final = (*ERRORS, *UNANSWERED)
"""Outcomes of calls that get a verdict."""
ENDED: Final = ("ok", *FAILED)
"""Outcomes of the calls that are counted in `success_rate`."""
UNSUCCESSFUL: Final = (*FAILED, "cancelled")
"""Outcomes of calls that did not get the requested result."""
UNFINISHED: Final = ("cancelled", "input_required", "task")
"""Outcomes of calls that neither succeeded nor failed."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "marked_error": MARKED_ERRORS,
        "error": ERRORS,
        "unanswered": UNANSWERED,
        "failed": FAILED,
        "ended": ENDED,
        "unfinished": UNFINISHED,
    }
)
"""Maps each group's name to its outcomes; SQL macros such as `_failed(outcome)` are made from it.
"""


class Verdict(enum.StrEnum):
    """The kind of a failure."""

    BUSINESS = "business"
    """The tool worked and rejected this request."""
    TOOL_FAILURE = "tool_failure"
    """The server is at fault, and no other request would have succeeded."""
    INFRASTRUCTURE = "infrastructure"
    """The network failed, the call timed out, or a service that the tool depends on is down."""
    AMBIGUOUS = "ambiguous"
    """The error text does not name the cause."""


UNFORESEEABLE: Final = (Verdict.INFRASTRUCTURE, Verdict.AMBIGUOUS)
"""Verdicts for failures that say nothing about the request or the tool."""

_VERDICTS: Final[Mapping[Verdict, str]] = MappingProxyType(
    {
        Verdict.BUSINESS: "the {} did its job and refused this request",
        Verdict.TOOL_FAILURE: "the {} itself failed",
        Verdict.INFRASTRUCTURE: "the network, or a service that the call needs, failed",
        Verdict.AMBIGUOUS: "the call does not show who is at fault",
    }
)


RESULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ok": "ok",
        Verdict.TOOL_FAILURE: "tool failure",
        Verdict.INFRASTRUCTURE: "infrastructure: no answer, network or upstream",
        Verdict.AMBIGUOUS: "ambiguous: cause unknown",
        Verdict.BUSINESS: "business: correctly refused",
        "open": "cancelled, unfinished or unknown",
    }
)
"""Maps a call's result (`ok`, the verdict of a failure, or unknown) to its wording in output."""


class Fault(enum.StrEnum):
    """Who must act so that the call works."""

    CALLER = "caller"
    ACCOUNT = "account"
    CLIENT = "client"
    TOOL = "tool"
    UPSTREAM = "upstream"
    NETWORK = "network"


FAULTS: Final[Mapping[Fault, str]] = MappingProxyType(
    {
        Fault.CALLER: "the arguments",
        Fault.ACCOUNT: "credentials, permissions, quota or billing",
        Fault.CLIENT: "the host application",
        Fault.TOOL: "the tool or its server",
        Fault.UPSTREAM: "a service behind the server",
        Fault.NETWORK: "the network",
    }
)
"""Maps each fault to its meaning."""


def meaning_of(verdict: str, fault: str | None, what: str = "tool") -> str:
    """Return what a call's verdict and fault say about `what` was called, such as a tool."""
    if verdict == Verdict.TOOL_FAILURE and fault == Fault.CLIENT:
        return f"the {what} cannot work as the host application set it up"
    return _VERDICTS[Verdict(verdict)].format(what)


START_FAILURES: Final[Mapping[str, tuple[Fault, str]]] = MappingProxyType(
    {
        "missing_program": (Fault.CLIENT, "a program is not installed"),
        "misconfigured": (
            Fault.CLIENT,
            "arguments, settings, credentials or permissions that the server was started with",
        ),
        "broken_dependency": (Fault.TOOL, "a module is missing or has another API"),
        "network": (Fault.NETWORK, "the network failed"),
        "upstream": (Fault.UPSTREAM, "a service that the server needs is down"),
        "crashed": (Fault.TOOL, "it crashed for another reason"),
        "no_answer": (Fault.TOOL, "no answer within 5 s, or before it exited with 0"),
    }
)
"""Maps each reason for a failed server start to the party at fault and the reason's meaning."""

UNKNOWN: Final = "unknown"
"""The word shown for an unknown (null) fault."""

ANSWERED_BY_CLIENT: Final[Mapping[Fault, Fault]] = MappingProxyType(
    {Fault.CALLER: Fault.TOOL, Fault.TOOL: Fault.CLIENT}
)
"""Maps a fault to the party at fault when the server made the request and the client answered.
Faults that are not listed stay the same."""


class Reason(NamedTuple):
    """The verdict and the usual fault that a reason implies."""

    verdict: Verdict
    fault: Fault | None
    """The fault for this reason, unless the matching rule sets another fault; None if unknown."""


_REASONS: Final[Mapping[tuple[Verdict, Fault | None], str]] = {
    (Verdict.BUSINESS, Fault.CALLER): (
        "conflict element_not_found invalid_selector not_found other_refusal page_not_loaded "
        "permission_policy precondition_state server_policy unknown_tool unsupported_or_disabled "
        "user_payload_error validation"
    ),
    (Verdict.BUSINESS, Fault.ACCOUNT): "auth_rejected rate_or_quota",
    (Verdict.BUSINESS, Fault.CLIENT): "client_capability http_refused",
    (Verdict.TOOL_FAILURE, Fault.TOOL): (
        "exception_bug internal_error misconfig_or_missing_dependency output_contract removed_api "
        "resource_exhausted server_crash"
    ),
    (Verdict.INFRASTRUCTURE, Fault.UPSTREAM): (
        "dependency_down navigation_timeout timeout_or_cancel upstream_5xx_or_malformed"
    ),
    (Verdict.INFRASTRUCTURE, Fault.NETWORK): "connection_closed network",
    (Verdict.INFRASTRUCTURE, None): "not_connected server_killed",
    (Verdict.AMBIGUOUS, None): "masked no_response not_understood unclear",
}
REASONS: Final[Mapping[str, Reason]] = MappingProxyType(
    {name: Reason(*key) for key, names in _REASONS.items() for name in names.split()}
)
"""All reasons used by the shipped rules; a user's rules may define more."""


def fault_of(reason: str, fault: str = "") -> str | None:
    """Return who is at fault for a failure: `fault` if given, else what the reason implies."""
    if fault:
        return None if fault == UNKNOWN else fault
    known = REASONS.get(reason)
    return known.fault if known else None


def sql_list(values: Iterable[str]) -> str:
    """Format values as an SQL list for `IN`, such as `('ok', 'timeout')`."""
    return "(" + ", ".join(f"'{value}'" for value in values) + ")"


def is_verdict(verdict: Verdict) -> str:
    """Return the SQL condition that a call has this verdict.

    The condition uses no macros, because it is also shown to users, who run it elsewhere.
    """
    return f"verdict = '{verdict}'"


def sql_macros() -> dict[str, str]:
    """Map macro names such as `_failed` to SQL, for groups, verdicts and start failures."""
    groups = {
        f"_{name}": f"-- Outcomes of the group {name}.\n-- Value of: outcome\n"
        f"outcome IN {sql_list(members)}"
        for name, members in GROUPS.items()
    }
    verdicts = {
        f"_is_{name}": f"-- The verdict {name}.\n-- Value of: verdict\n{is_verdict(name)}"
        for name in Verdict
    } | {
        "_is_unforeseeable": "-- Verdicts that say nothing about request and tool.\n"
        f"-- Value of: verdict\nverdict IN {sql_list(UNFORESEEABLE)}"
    }
    faults = " ".join(
        f"WHEN '{name}' THEN '{fault}'" for name, (fault, _) in START_FAILURES.items()
    )
    starts = {
        "_start_fault": "-- Whose fault it is that a server's start failed.\n"
        f"-- Value of: start_failure\nCASE start_failure {faults} ELSE 'tool' END"
    }
    return groups | verdicts | starts
