"""Validates payloads against the message schemas of the revision in force.

Decoding has already checked the types of most members, so the columns of an ordinary tool call show
whether it is valid. All other payloads are validated, each distinct text once. The schemas come
from the `mcp` package (`message_schemas.json`, written by
tests/protocol/generate_message_schemas.py); additions of later revisions are removed from them
(`revisions.toml`).
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import msgspec
import polars as pl

from mcptally.jsonschemas.subschemas import each_subschema
from mcptally.jsonschemas.validate import member_message
from mcptally.jsonschemas.validators import Validator, validate_json, validator_from_engine
from mcptally.messages.event_tables import Replies, RequestParams
from mcptally.protocol.revisions import ERA, STATELESS, names, table
from mcptally.protocol.traffic import Traffic, TrafficCalls, TrafficMessages
from mcptally.rules.findings import (
    REVISIONS,
    Check,
    make_findings,
    run_checks,
    select_for_findings,
)
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query

ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
}
"""The schema of an error object in JSON-RPC 2.0, section 5.1."""

ShapeResult = tuple[str, str | None, str | None]
"""State (`valid`, `null`, `invalid`, …), error message, and JSON Pointer to the error. The state
`null` means that the payload is invalid only because optional members are null."""


class Shapes(StageTable):
    """The columns of a `ShapeResult`, the result of validating a payload against its schema."""

    state = Column(pl.String, "`valid`, `null`, `invalid`, …")
    words = Column(pl.String, "What is wrong.")
    pointer = Column(pl.String, "JSON Pointer to it.")


class _Payloads(StageTable):
    """One row per payload that is validated."""

    kind = Column(pl.String, "Kind of the schema: `requests`, `notifications` or `results`.")
    shape = Column(pl.String, "Method, or kind of result.")
    revision = TrafficCalls.revision
    text = Column(pl.String, "JSON text of the payload.")
    has_params = Column(pl.Boolean, "Whether the request has parameters.")
    settled = Column(pl.Boolean, "Whether the columns determine all of the payload but `_meta`.")
    at = Column(pl.UInt32, "Number of the payload.")


def check_payloads(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Yield findings about payloads that their message schemas reject."""
    yield from _validated(_requests(traffic), _notifications(traffic), _results(traffic))
    yield from _validated_errors(traffic)
    for member in table()["result_members"]:
        if member.name == "structuredContent":
            early = [r for r in REVISIONS if not member.holds(r)]
            yield from run_checks(
                traffic.calls,
                Check(
                    "protocol.too_new",
                    TrafficCalls.has_structured_content.col
                    & TrafficCalls.revision.col.is_in(early),
                    formatted(
                        "structuredContent was added in {}; the session uses {}",
                        pl.lit(member.since),
                        "revision",
                    ),
                    path="/result/structuredContent",
                ),
            )


@functools.cache
def document() -> dict[str, Any]:
    """Return the content of `message_schemas.json`.

    For each era it has `$defs`, and the name of a definition in `$defs` for each kind and method.
    """
    text = Path(__file__).with_name("message_schemas.json").read_bytes()
    schemas: dict[str, Any] = msgspec.json.decode(text)
    return schemas


@functools.cache
def validator(kind: str, method: str, revision: str, *, nulls: bool = False) -> Validator | None:
    """Return the validator for a method's payloads in a revision, or None if there is no schema.

    Args:
        kind: `requests`, `notifications`, `results` or `definitions`.
        method: the method; for results also `task` and `input_required`.
        revision: one of `REVISIONS`.
        nulls: whether optional members may be null.
    """
    era = document()[ERA[revision]]
    name = era[kind].get(method)
    if name is None:
        return None
    later, lists = (
        {span.name for span in table()[what] if not span.holds(revision)}
        for what in ("blocks", "lists")
    )
    definitions = _reachable(name, ERA[revision])
    if later or lists or nulls:
        definitions = {
            key: _without_later(value, later, lists, nulls=nulls)
            for key, value in definitions.items()
        }
    schema = {"$ref": f"#/$defs/{name}", "$defs": definitions}
    return _compiled(msgspec.json.encode(schema).decode())


@functools.cache
def _compiled(schema: str) -> Validator:
    """Compile a schema's JSON text to a validator, which revisions and methods may share."""
    return validator_from_engine(
        jsonschema_rs.Draft202012Validator(schema, offline=True, validate_formats=False)
    )


def check_shape(kind: str, method: str, revision: str, text: str) -> ShapeResult:
    """Validate one payload, given as JSON text, as `validator` does.

    A payload for which there is no schema is valid.

    Args:
        kind: `requests`, `notifications`, `results` or `definitions`.
        method: the method; for results also `task` and `input_required`.
        revision: one of `REVISIONS`.
        text: the payload.
    """
    strict = validator(kind, method, revision)
    if strict is None:
        return "valid", None, None
    state, words, pointer = validate_json(strict, text)
    if state == "invalid":
        lenient = validator(kind, method, revision, nulls=True)
        if lenient is not None and validate_json(lenient, text)[0] == "valid":
            state = "null"
    return state, words, pointer


def _reachable(name: str, era: str) -> dict[str, Any]:
    """Map the names of an era's definition `name`, and of all that it refers to, to definitions."""
    to_visit = [name]
    reachable: dict[str, Any] = {}
    while to_visit:
        current = to_visit.pop()
        if current not in reachable:
            reachable[current] = document()[era]["$defs"][current]
            to_visit += _references(era, current)
    return reachable


@functools.cache
def _references(era: str, definition: str) -> tuple[str, ...]:
    """Return the names of the definitions to which a definition refers."""
    text = msgspec.json.encode(document()[era]["$defs"][definition]).decode()
    return tuple(dict.fromkeys(_REFERENCE.findall(text)))


_REFERENCE: Final = re.compile(r'"\$ref":"#/\$defs/([^"]*)"')


def _without_later(schema: Any, later: set[str], lists: set[str], *, nulls: bool) -> Any:
    """Return a copy of a schema without the additions of later revisions.

    Args:
        schema: the schema of the era.
        later: types of content blocks that the revision lacks.
        lists: members that are a single block in the revision but a list of blocks in later ones.
        nulls: whether optional members may be null.
    """

    def restrict(node: dict[str, Any]) -> dict[str, Any]:
        members = node.get("properties", {})
        kinds = members.get("type", {})
        if "allOf" in node and "enum" in kinds:
            kinds["enum"] = [kind for kind in kinds["enum"] if kind not in later]
        for name in lists & members.keys():
            options = members[name].get("anyOf", ())
            if len(options) > 1:
                members[name]["anyOf"] = [o for o in options if o.get("type") != "array"]
        if nulls:
            for name, member in members.items():
                if name not in node.get("required", ()):
                    members[name] = {"anyOf": [member, {"type": "null"}]}
        return node

    return each_subschema(schema, restrict)


def _with_method(method: pl.Expr, params: pl.Expr) -> pl.Expr:
    """Return an expression for a message's JSON text.

    Args:
        method: the message's method.
        params: the JSON text of the message's params; may be null.
    """
    begin = pl.concat_str(pl.lit('{"method":"'), method, pl.lit('"'))
    member = pl.concat_str(pl.lit(',"params":'), params)
    return pl.concat_str(begin, pl.coalesce(member, pl.lit("")), pl.lit("}"))


def _requests(traffic: Traffic) -> pl.LazyFrame:
    """Return the requests that must be validated, with their JSON as `text`.

    The columns of all other requests already show that they are valid.
    """
    asks = traffic.events.asks.lazy().select(
        "row", "params", "meta_capabilities", has_params=pl.lit(value=True)
    )
    rows = (
        traffic.calls.lazy()
        .filter(
            ~TrafficCalls.truncated.col, TrafficCalls.method.col.is_in(sorted(names("request")))
        )
        .join(asks, on="row", how="left", maintain_order="left")
    )
    settled = _Payloads.has_params.col.fill_null(value=False) & RequestParams.params.col.is_null()
    # Decoding has validated the parameters of ordinary tool calls, except the client's information
    # in `_meta`.
    envelope = pl.concat_str(
        pl.lit('{"name":"","_meta":{"io.modelcontextprotocol/clientCapabilities":'),
        pl.coalesce("meta_capabilities", pl.lit("{}")),
        pl.lit(',"io.modelcontextprotocol/clientInfo":'),
        pl.coalesce("meta_client_info", pl.lit('{"name":"","version":""}')),
        pl.lit("}}"),
    )
    has_meta = (
        RequestParams.meta_capabilities.col.is_not_null()
        | TrafficCalls.meta_client_info.col.is_not_null()
    )
    return rows.filter(
        ~settled | (TrafficCalls.revision.col.is_in(STATELESS) & has_meta)
    ).with_columns(
        kind=pl.lit("requests"),
        shape="method",
        text=_with_method(
            TrafficCalls.method.col, pl.when(settled).then(envelope).otherwise("params")
        ),
    )


def _notifications(traffic: Traffic) -> pl.LazyFrame:
    """Return the notifications with their JSON as `text`."""
    asks = traffic.events.asks.lazy().select("row", "params")
    return (
        traffic.messages.lazy()
        .filter(
            _Payloads.kind.col == "notification",
            ~TrafficMessages.truncated.col,
            TrafficMessages.method.col.is_in(sorted(names("notification"))),
        )
        .join(asks, on="row", how="left", maintain_order="left")
        .with_columns(
            kind=pl.lit("notifications"),
            shape="method",
            text=_with_method(TrafficMessages.method.col, RequestParams.params.col),
        )
    )


def _results(traffic: Traffic) -> pl.LazyFrame:
    """Return the results that must be validated, with their JSON as `text`.

    The columns of all other results already show that they are valid.
    """
    replies = traffic.events.replies.lazy().select(
        "odd", "text_only", "meta_server_info", "meta_subscription", reply_row="row"
    )
    texts = traffic.events.replies.lazy().select(reply_row="row", text="response")
    rows = (
        traffic.calls.lazy()
        .filter(
            ~TrafficCalls.error_reply.col,
            ~TrafficCalls.reply_truncated.col,
            "has_response",
            TrafficCalls.method.col.is_in(sorted(names("request"))),
        )
        .join(replies, on="reply_row", how="left", maintain_order="left")
    )
    modern = TrafficCalls.revision.col.is_in(STATELESS)
    named = Replies.meta_server_info.col.is_not_null() | Replies.meta_subscription.col.is_not_null()
    settled = (
        (TrafficCalls.method.col == "tools/call")
        & (TrafficCalls.content_kind.col == "array")
        & Replies.text_only.col
        & ~Replies.odd.col
        & (TrafficCalls.structured_object.col.fill_null(value=True) | modern)
        & (~TrafficCalls.has_meta.col | named)
        & (TrafficCalls.result_type.col.is_null() | (TrafficCalls.result_type.col == "complete"))
    )
    about_server = pl.concat_str(
        pl.lit('{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":'),
        "meta_server_info",
        pl.lit("}}"),
    )
    shape = (
        pl.when(modern & (TrafficCalls.result_type.col == "input_required"))
        .then(pl.lit("input_required"))
        .when(modern & TrafficCalls.result_type.col.ne_missing(pl.lit("complete")))
        .then(pl.when(TrafficCalls.result_type.col.is_null()).then("method"))
        .when(~modern & (TrafficCalls.outcome.col == "task"))
        .then(pl.lit("task"))
        .otherwise("method")
    )
    unsettled = (
        rows.filter(~settled | (modern & Replies.meta_server_info.col.is_not_null()))
        .with_columns(settled=settled, shape=shape)
        .drop_nulls("shape")
    )
    read = ("settled", "shape", "revision", "reply_row", "meta_server_info")
    found = select_for_findings(unsettled, *read).pipe(run_query)
    # `when` would copy all texts.
    both = [
        found.lazy().filter("settled").with_columns(text=about_server),
        found.lazy()
        .filter(~pl.col("settled"))
        .join(texts, on="reply_row", how="left", maintain_order="left"),
    ]
    return pl.concat(both).with_columns(kind=pl.lit("results"))


def _validated_errors(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Yield findings about errors that are not an object with a code and a message."""
    replies = traffic.events.replies.lazy().select("odd", "response", reply_row="row")
    rows = (
        traffic.calls.lazy()
        .filter("error_reply", ~TrafficCalls.reply_truncated.col, "has_response")
        .join(replies, on="reply_row", how="left", maintain_order="left")
        .filter(
            Replies.odd.col
            | TrafficCalls.error_code.col.is_null()
            | TrafficCalls.error_message.col.is_null()
        )
        .pipe(run_query)
    )
    if not rows.height:
        return
    by_schema = validator_from_engine(jsonschema_rs.Draft202012Validator(ERROR_SCHEMA))
    texts = rows.get_column(Replies.response.name).unique()
    results = _with_results({"response": texts}, [validate_json(by_schema, text) for text in texts])
    yield make_findings(
        "protocol.error_shape",
        rows.lazy()
        .join(results.lazy(), on="response", maintain_order="left")
        .filter(Shapes.state.col == "invalid"),
        formatted("the error {}", "words"),
        evidence="response",
        path=pl.lit("/error") + Shapes.pointer.col,
    )


_RULES: Final = {
    "requests": "protocol.request_shape",
    "notifications": "protocol.notification_shape",
    "results": "protocol.result_shape",
}
"""Maps each kind of payload to the rule that invalid payloads break."""


def _validated(*payloads: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield findings about invalid payloads, which have `kind`, `shape`, `revision` and `text`."""
    keys = ["kind", "shape", "revision"]
    rows = (
        pl.concat([select_for_findings(each, *keys, "text") for each in payloads], how="diagonal")
        .filter(TrafficCalls.revision.col.is_in(REVISIONS), _Payloads.text.col.is_not_null())
        .pipe(run_query)
    )
    if not rows.height:
        return
    # Group by hashes, because grouping by texts would copy them.
    distinct = (
        rows.lazy()
        .select(*keys, hash=_Payloads.text.col.hash(), at=pl.int_range(pl.len(), dtype=pl.UInt32))
        .group_by("hash", *keys)
        .agg("at")
        .pipe(run_query)
    )
    texts = rows.get_column("text").gather(distinct.get_column("at").list.first())
    checked = distinct[keys].hstack([texts])
    results = [check_shape(*key) for key in checked.iter_rows()]
    invalid = (
        _with_results({"at": distinct.get_column(_Payloads.at.name)}, results)
        .lazy()
        .filter(Shapes.state.col != "valid")
        .explode("at", empty_as_null=False)
        .sort("at")
        .pipe(run_query)
    )
    wrong = rows[invalid.get_column(_Payloads.at.name)].hstack(invalid[list(Shapes.columns())])
    kind, state = _Payloads.kind.col, Shapes.state.col
    place = pl.when(kind == "results").then(pl.lit("/result")).otherwise(pl.lit(""))
    whole = formatted("the {}", kind.str.strip_suffix("s"))
    message = member_message(Shapes.pointer, Shapes.words, whole)
    path = place + Shapes.pointer.col
    yield from run_checks(
        wrong,
        *(
            Check(rule, (kind == name) & (state == "invalid"), message, evidence="text", path=path)
            for name, rule in _RULES.items()
        ),
        Check(
            "protocol.null_member",
            state == "null",
            formatted("{}; leave it out instead", message),
            evidence="text",
            path=path,
        ),
    )


def _with_results(keys: dict[str, pl.Series], results: list[ShapeResult]) -> pl.DataFrame:
    """Combine the columns `keys` with the results, as the columns of `Shapes`."""
    return pl.DataFrame(keys).hstack(pl.DataFrame(results, schema=Shapes.schema(), orient="row"))
