"""Errors made regular: category, code, HTTP equivalent, retryable, hint and details of every error.

What a server says in a structure is read (`structured`, or `partial` where it says half of it);
the rest is inferred from the rows of `rules/regular.toml`. The categories and statuses are those
of the validation-logic seed; `verdict` is decided elsewhere and may disagree.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from mcptally import rules as rule_files
from mcptally.redaction.display import sanitised
from mcptally.seeds.inspector.javascript import printable
from mcptally.seeds.validation_logic.arguments import first_given
from mcptally.tables.calls import FAILED
from mcptally.verdict import error_text, match
from mcptally.verdict.rule_model import TextRule, status_in

FILE: Final = "regular.toml"


class Category(NamedTuple):
    """What a category means for whoever reads it."""

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
    "patch": Category(
        409, "PATCH_ERROR", "Make the patch anew against the present files and paths."
    ),
    "cancelled": Category(499, "CANCELLED", "Nothing to mend: the caller gave up."),
    "internal": Category(
        500, "INTERNAL_ERROR", "The server failed; its operator has to look at its log."
    ),
}
"""Category → HTTP status, code where there is none, and a hint."""

RETRYABLE: Final = frozenset({"rate_limited", "timeout", "upstream"})
"""Categories where trying again may help."""

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
"""Which of ours other people's categories and codes are, by what they are called."""

COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "error_category": pl.String(),
    "error_code_name": pl.String(),
    "http_equivalent": pl.Int64(),
    "error_retryable": pl.Boolean(),
    "error_hint": pl.String(),
    "error_details": pl.String(),
    "error_source": pl.String(),
}
"""What `regular` adds; null where the outcome is none of `FAILED`."""

INPUTS: Final[Mapping[str, pl.DataType]] = {
    "outcome": pl.String(),
    "error_text": pl.String(),
    "text": pl.String(),
    "error_code": pl.Int64(),
    "error_data": pl.String(),
    "structured_content": pl.String(),
    "http_status": pl.Int64(),
    "reason": pl.String(),
}
"""What `regular` reads; a column that is missing counts as null."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegularRule(TextRule):
    """What an error without structure is taken for."""

    category: str
    code: str = ""
    """Name of the code; none given: the category's."""
    http: int = 0
    """HTTP status; none given: the category's."""
    codes: tuple[int, ...] = ()
    statuses: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()


@functools.cache
def rules() -> tuple[RegularRule, ...]:
    """The rows, in the order in which they decide."""
    return tuple(sorted(rule_files.load(RegularRule, FILE), key=lambda rule: rule.order))


class Said(NamedTuple):
    """What an error says of itself in a structure."""

    category: str | None = None
    code: str | None = None
    http: int | None = None
    retryable: bool | None = None
    hint: str | None = None
    details: str | None = None
    complete: bool = False


def regular(calls: pl.DataFrame) -> pl.DataFrame:
    """The columns of `COLUMNS` for `calls`, row by row in the same order."""
    have = set(calls.columns)
    rows = calls.select(
        (pl.col(name) if name in have else pl.lit(None)).cast(kind).alias(name)
        for name, kind in INPUTS.items()
    )
    errors = rows.with_row_index("row").filter(pl.col("outcome").is_in(FAILED))
    errors = errors.with_columns(key=pl.struct(*INPUTS).hash())
    failed = errors.unique("key", maintain_order=True)
    inferred = _inferred(failed)
    told = {
        row: _said(*sources)
        for row, *sources in failed.with_row_index("place")
        .filter(
            pl.any_horizontal(pl.col(*_STRUCTURES).str.contains(_MEMBERS.pattern))
            | pl.col("error_data").str.contains(r"^[{\[]")
        )
        .select("place", *_STRUCTURES)
        .iter_rows()
    }
    coded = failed.get_column("error_code").is_not_null().to_list()
    nothing = Said()
    made = [
        _made(told.get(place, nothing), rule, code)
        for place, (rule, code) in enumerate(zip(inferred, coded, strict=True))
    ]
    judged = pl.DataFrame(made, schema=dict(COLUMNS), orient="row")
    known = errors.select("row", "key").join(
        failed.select("key").hstack(judged), on="key", how="left", maintain_order="left"
    )
    every = pl.DataFrame({"row": pl.int_range(calls.height, dtype=pl.UInt32, eager=True)})
    return every.join(known, on="row", how="left", maintain_order="left").select(*COLUMNS)


def _inferred(failed: pl.DataFrame) -> list[RegularRule]:
    """The row that decides for each error."""
    chosen = rules()
    text = pl.col("error_text").fill_null("")
    texts = failed.select(text=text).unique(maintain_order=True).with_row_index("number")
    texts = texts.with_columns(told=error_text.http_status(pl.col("text")))
    matched = match.matching(chosen, texts["text"], texts["text"])
    frame = failed.with_columns(text=text).join(texts, on="text", how="left", maintain_order="left")
    # The exchange's own status is the transport's: a 200 carries every error of a tool.
    own = pl.when(pl.col("http_status") >= 400).then("http_status")
    frame = frame.with_columns(status=pl.coalesce(pl.col("told").cast(pl.Int64), own))
    number = frame["number"].to_numpy()
    asked = {place: list(_conditions(rule)) for place, rule in enumerate(chosen)}
    conditions = frame.select(
        pl.all_horizontal(asks).fill_null(value=False).alias(f"{place}")
        for place, asks in asked.items()
        if asks
    )
    first = np.full(frame.height, len(chosen) - 1)
    for place in range(len(chosen) - 2, -1, -1):
        rows = matched[place]
        holds = np.ones(frame.height, dtype=np.bool_)
        if rows is not None:
            of_text = np.zeros(texts.height, dtype=np.bool_)
            of_text[rows] = True
            holds = of_text[number]
        if asked[place]:
            holds = holds & conditions[f"{place}"].to_numpy()
        first[holds] = place
    return [chosen[place] for place in first.tolist()]


def _conditions(rule: RegularRule) -> Iterator[pl.Expr]:
    for column, allowed in (
        ("error_code", rule.codes),
        ("reason", rule.reasons),
        ("outcome", rule.outcomes),
    ):
        if allowed:
            yield pl.col(column).is_in(list(allowed))
    if rule.statuses:
        yield status_in(rule.statuses)


def _made(said: Said, rule: RegularRule, coded: bool) -> tuple[Any, ...]:  # noqa: FBT001
    """One error, from what it says and, where it is silent, from the row that decides."""
    category = said.category or rule.category
    usual = CATEGORIES[category]
    agrees = category == rule.category
    code = said.code or (agrees and rule.code) or usual.code
    http = said.http or (agrees and not said.code and rule.http) or _patch(code) or usual.http
    retryable = category in RETRYABLE if said.retryable is None else said.retryable
    read = coded or said.category or said.code or said.http or said.retryable is not None
    source = "structured" if said.complete else "partial" if read else "inferred"
    return category, code, http, retryable, said.hint or usual.hint, said.details, source


def _patch(code: str) -> int:
    """HTTP equivalents that a patch's code decides rather than its category."""
    return {"PATCH_EMPTY": 400, "PATCH_MALFORMED": 400, "FILE_NOT_FOUND": 404}.get(code, 0)


# --- errors that carry a structure ---

_STRUCTURES: Final = ("structured_content", "text", "error_text", "error_data")

_MEMBERS: Final = re.compile(
    r'"(?:error_detail|errorDetail|error|errors|category|code|status|status_?[cC]ode|http_?[sS]tatus|'
    r'retryable|hint)"\s*:'
)

_ERROR_MEMBERS: Final = frozenset({"category", "code", "retryable", "status", "http_status"})


def _said(*sources: str | None) -> Said:
    """What the first complete structure says, or else the first that says anything."""
    best = Said()
    data = sources[-1]
    for source in dict.fromkeys(sources):
        if source is None or not _MEMBERS.search(source):
            continue
        found = read(_parsed(source))
        if found.complete:
            return found
        if best == Said() or (best.category is None and found.category is not None):
            best = found
    if best.details is None and data is not None and data[:1] in "{[":
        best = best._replace(details=sanitised(data))
    return best


def _parsed(text: str) -> Any:
    """The JSON object or array that a text is, or that stands at its end."""
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


def read(payload: Any) -> Said:
    """What a payload says about its error: `error_detail`, `error` as an object, or at its top.

    A list of issues, as schema libraries write them, says where and what, and that it is
    validation.
    """
    if isinstance(payload, list) and payload and all(map(_is_issue, payload)):
        return Said(category="validation", details=_text_of(payload))
    if not isinstance(payload, dict):
        return Said()
    detail = first_given(payload, "error_detail", "errorDetail", "error")
    if isinstance(detail, str) and detail[:1] == "{":
        detail = _parsed(detail)
    if isinstance(detail, dict):
        said = _detail(detail, payload)
    elif _ERROR_MEMBERS & payload.keys() and _reports(payload):
        said = _detail(payload, payload)
    else:
        said = Said()
    if said.details is None and isinstance(payload.get("errors"), list) and payload["errors"]:
        said = said._replace(details=_text_of(payload["errors"]))
    return said


def _is_issue(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and ("message" in value or "msg" in value)
        and ("path" in value or "loc" in value or "field" in value)
    )


def _reports(payload: Mapping[str, Any]) -> bool:
    """Whether an object is about a failure at all: data has codes and states as well."""
    no = (payload.get("ok"), payload.get("success"), payload.get("valid"))
    status = payload.get("status")
    return (
        any(each is False for each in no)
        or (isinstance(status, str) and status.lower() in {"error", "failed", "failure", "fail"})
        or isinstance(payload.get("category"), str)
        or isinstance(payload.get("error"), str)
        or (isinstance(payload.get("message"), str) and "code" in payload)
    )


def _detail(detail: Mapping[str, Any], around: Mapping[str, Any]) -> Said:
    category = _known(first_given(detail, "category", "type", "kind"))
    given = first_given(detail, "code", "error_code", "errorCode")
    code = given[:64] if isinstance(given, str) and re.match(r"[A-Za-z][\w.:-]*\Z", given) else None
    status = _status(detail) or _status(around)
    from_code = _known(code) if code else None
    retryable = first_given(detail, "retryable", "is_retryable", "isRetryable", "retriable")
    hint = first_given(detail, "hint", "suggestion", "help", "remediation", "how_to_fix")
    details = first_given(detail, "details", "detail", "data", "fields", "issues", "context")
    complete = category is not None and code is not None
    return Said(
        category=category or from_code or (status and category_of(status)) or None,
        code=code,
        http=status,
        retryable=retryable if isinstance(retryable, bool) else None,
        hint=sanitised(printable(hint), 500) if isinstance(hint, str) and hint else None,
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


def category_of(status: int) -> str | None:
    """The category of an HTTP status, from 400 on."""
    return _STATUS.get(status) or ("upstream" if status >= 500 else "validation")


def _known(name: Any) -> str | None:
    """Our category for somebody else's category or code."""
    if not isinstance(name, str):
        return None
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s.:-]+", "_", name).lower()
    if snake in CATEGORIES:
        return snake
    for category, pattern in _SYNONYMS:
        if re.search(pattern, snake):
            return category
    return None


def _text_of(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # JSON within a text may spell half a character, which no column holds.
    return sanitised(printable(text))


def decides(examples: Sequence[str | Mapping[str, Any]]) -> list[str]:
    """The id of the row that decides for each example of a row, if no structure says more."""
    inputs = [
        {"outcome": "tool_error"}
        | ({"error_text": example} if isinstance(example, str) else dict(example))
        for example in examples
    ]
    return [rule.id for rule in _inferred(pl.DataFrame(inputs, schema=dict(INPUTS)))]
