"""Error categories of the validation-logic document: HTTP status, code and hint of each.

Also maps HTTP statuses, and the category names and codes that other servers use, to a category.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Category(NamedTuple):
    """The defaults of a category."""

    http: int
    code: str
    hint: str


CATEGORIES: Final[Mapping[str, Category]] = {
    "validation": Category(
        400, "VALIDATION_ERROR", "Change the arguments; the message or inputSchema says how."
    ),
    "auth": Category(
        401, "AUTH_REQUIRED", "Give the server valid credentials; the call need not change."
    ),
    "permission": Category(
        403, "PERMISSION_DENIED", "Ask for the right to do this, or do something else."
    ),
    "not_found": Category(
        404, "NOT_FOUND", "Check the name, id or path; list what is there first."
    ),
    "conflict": Category(
        409, "CONFLICT", "Read the present state again and repeat the change on top of it."
    ),
    "rate_limited": Category(429, "RATE_LIMITED", "Wait, then try again more slowly."),
    "timeout": Category(504, "TIMEOUT", "Try again, with less work in one call."),
    "upstream": Category(
        502, "UPSTREAM_ERROR", "Something behind the server failed; try again later."
    ),
    "patch": Category(409, "PATCH_ERROR", "Make a new patch against the current files and paths."),
    "cancelled": Category(499, "CANCELLED", "Nothing to fix: the caller cancelled the call."),
    "internal": Category(
        500, "INTERNAL_ERROR", "The server failed; its operator has to look at its log."
    ),
}
"""The defaults by category, for what an error does not say itself."""

RETRYABLE: Final = frozenset({"rate_limited", "timeout", "upstream"})
"""Categories of errors that a repetition of the call may avoid."""

_STATUS: Final[Mapping[int, str]] = {
    400: "validation",
    401: "auth",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    410: "not_found",
    422: "validation",
    429: "rate_limited",
    499: "cancelled",
    504: "timeout",
}

_SYNONYMS: Final[tuple[tuple[str, str], ...]] = (
    ("rate_limited", r"rate_?limit|too_?many|throttl|quota"),
    ("timeout", r"time_?d?_?out|deadline"),
    ("cancelled", r"cancel|abort"),
    (
        "not_found",
        r"not_?found|no_?such|does_?not_?exist|^enoent$|missing_resource|unknown_(?:tool|method)",
    ),
    (
        "auth",
        (
            r"unauthori[sz]ed|unauthenticated|^auth|authentication"
            r"|invalid_(?:token|api_key|credentials)"
        ),
    ),
    ("permission", r"forbidden|permission|access_?denied|not_?allowed|^e(?:acces|perm)$"),
    ("conflict", r"conflict|already_?exists|precondition|^eexist$|stale"),
    ("patch", r"^patch"),
    (
        "upstream",
        r"upstream|bad_?gateway|unavailable|network|connection|^econn|^enotfound$|dependency",
    ),
    (
        "validation",
        (
            r"valid|bad_?request|argument|param|schema|usage|parse|malformed|missing|required"
            r"|value_?error|type_?error"
        ),
    ),
    ("internal", r"internal|server_?error|exception|unknown_?error|unexpected"),
)
"""Pairs of our category and a pattern of the names of other servers' categories and codes."""


def category_of_status(status: int) -> str:
    """The category of an HTTP status of 400 or more."""
    return _STATUS.get(status) or ("upstream" if status >= 500 else "validation")


def category_named(name: Any) -> str | None:
    """The category that a name of a category or code of another server means, if known."""
    if not isinstance(name, str):
        return None
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s.:-]+", "_", name).lower()
    if snake in CATEGORIES:
        return snake
    for category, pattern in _SYNONYMS:
        if re.search(pattern, snake):
            return category
    return None
