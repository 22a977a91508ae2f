"""Parses structured errors in JSON: category, code, status, hint and details."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mcptally.redaction.display import mask_and_cut
from mcptally.seeds.javascript import printable
from mcptally.seeds.validation_logic.error_categories import category_named, category_of_status
from mcptally.wire.json_text import first_present


class StructuredError(NamedTuple):
    """What a structured error says about itself; missing members are None."""

    category: str | None = None
    code: str | None = None
    http: int | None = None
    retryable: bool | None = None
    hint: str | None = None
    details: str | None = None
    complete: bool = False
    """Whether the error has both a known category and a code."""


NOTHING: Final = StructuredError()
"""The result for an error without structure."""

MEMBERS: Final = re.compile(
    r'"(?:error_detail|errorDetail|error|errors|category|code|status|status_?[cC]ode|http_?[sS]tatus|'
    r'retryable|hint)"\s*:'
)

"""Matches names of members that indicate a structured error."""

_ERROR_MEMBERS: Final = frozenset({"category", "code", "retryable", "status", "http_status"})


def read_first(*sources: str | None) -> StructuredError:
    """Parse the structured errors in some texts, and return the first complete one.

    If none is complete, returns the first that is not empty. The last text is a JSON-RPC error's
    `data`, which becomes the details if the structure has none.
    """
    best = NOTHING
    data = sources[-1]
    for source in dict.fromkeys(sources):
        if source is None or not MEMBERS.search(source):
            continue
        found = read(_json_in(source))
        if found.complete:
            return found
        if best == NOTHING or (best.category is None and found.category is not None):
            best = found
    if best.details is None and data is not None and data[:1] in "{[":
        best = best._replace(details=mask_and_cut(data))
    return best


def _json_in(text: str) -> Any:
    """Return the first non-empty JSON object or array in a text, or None."""
    starts = [match.start() for match in re.finditer(r"[{\[]", text[:400])][:4]
    for start in starts:
        try:
            value, _ = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if value:
            return value
    return None


_DECODER: Final = json.JSONDecoder()


def read(payload: Any) -> StructuredError:
    """Return the error that a payload's `error_detail`, `error` or own members describe.

    A list of issues, as schema libraries write it, is a validation error with these details.
    """
    if isinstance(payload, list) and payload and all(map(_is_issue, payload)):
        return StructuredError(category="validation", details=_text_of(payload))
    if not isinstance(payload, dict):
        return NOTHING
    detail = first_present(payload, "error_detail", "errorDetail", "error")
    if isinstance(detail, str) and detail[:1] == "{":
        detail = _json_in(detail)
    if isinstance(detail, dict):
        error = _read_members(detail, payload)
    elif _ERROR_MEMBERS & payload.keys() and _reports_failure(payload):
        error = _read_members(payload, payload)
    else:
        error = NOTHING
    if error.details is None and isinstance(payload.get("errors"), list) and payload["errors"]:
        error = error._replace(details=_text_of(payload["errors"]))
    return error


def _is_issue(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and ("message" in value or "msg" in value)
        and ("path" in value or "loc" in value or "field" in value)
    )


def _reports_failure(payload: Mapping[str, Any]) -> bool:
    """Return whether an object reports a failure; ordinary data may also have code and status."""
    flags = (payload.get("ok"), payload.get("success"), payload.get("valid"))
    status = payload.get("status")
    return (
        any(flag is False for flag in flags)
        or (isinstance(status, str) and status.lower() in {"error", "failed", "failure", "fail"})
        or isinstance(payload.get("category"), str)
        or isinstance(payload.get("error"), str)
        or (isinstance(payload.get("message"), str) and "code" in payload)
    )


def _read_members(detail: Mapping[str, Any], payload: Mapping[str, Any]) -> StructuredError:
    category = category_named(first_present(detail, "category", "type", "kind"))
    given = first_present(detail, "code", "error_code", "errorCode")
    code = given[:64] if isinstance(given, str) and re.match(r"[A-Za-z][\w.:-]*\Z", given) else None
    status = _status(detail) or _status(payload)
    from_code = category_named(code) if code else None
    retryable = first_present(detail, "retryable", "is_retryable", "isRetryable", "retriable")
    hint = first_present(detail, "hint", "suggestion", "help", "remediation", "how_to_fix")
    details = first_present(detail, "details", "detail", "data", "fields", "issues", "context")
    complete = category is not None and code is not None
    return StructuredError(
        category=category or from_code or (status and category_of_status(status)) or None,
        code=code,
        http=status,
        retryable=retryable if isinstance(retryable, bool) else None,
        hint=mask_and_cut(printable(hint), 500) if isinstance(hint, str) and hint else None,
        details=_text_of(details) if details not in (None, "", [], {}) else None,
        complete=complete,
    )


def _status(value: Mapping[str, Any]) -> int | None:
    names = ("http_status", "httpStatus", "status_code", "statusCode", "status", "code")
    for name in names:
        given = value.get(name)
        if isinstance(given, str) and re.match(r"[45]\d\d\Z", given):
            given = int(given)
        if isinstance(given, int) and not isinstance(given, bool) and 400 <= given <= 599:
            return given
    return None


def _text_of(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # JSON may contain a lone surrogate as an escape, but a column cannot contain it.
    return mask_and_cut(printable(text))
