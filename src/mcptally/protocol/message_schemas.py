"""Payloads against the shapes of the revision in force: columns first, then what they leave open.

Decoding has typed most members already, so the ordinary request and result of a tool is settled by
comparing columns. Of all the rest each distinct text is validated once, in batches by schema. The
schemas are those of the installed `mcp` package (`shapes.json`, see `generate.py`) less what a
revision did not have yet (`revisions.toml`).
"""

import functools
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

import jsonschema_rs
import msgspec
import polars as pl

from mcptally.jsonschemas.subschemas import each_subschema
from mcptally.jsonschemas.validators import Judge, judge_value, judge_with
from mcptally.protocol.revisions import ERA, MODERN, names, table
from mcptally.protocol.view import Traffic
from mcptally.rules.findings import REVISIONS, findings_of
from mcptally.tables.formatting import formatted

ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
}
"""JSON-RPC 2.0, section 5.1."""


def find(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Findings about the shapes of payloads."""
    yield from _judged(_requests(traffic), "protocol.request_shape")
    yield from _judged(_notifications(traffic), "protocol.notification_shape")
    yield from _judged(_results(traffic), "protocol.result_shape", prefix="/result")
    yield from _errors(traffic)
    for member in table()["result_members"]:
        if member.name == "structuredContent":
            early = [r for r in REVISIONS if not member.holds(r)]
            yield findings_of(
                "protocol.too_new",
                traffic.calls.filter(
                    pl.col("has_structured_content"), pl.col("revision").is_in(early)
                ),
                formatted(
                    "structuredContent came with {}; {} is in force",
                    pl.lit(member.since),
                    "revision",
                ),
                path="/result/structuredContent",
            )


@functools.cache
def document() -> dict[str, Any]:
    """`shapes.json`: era → `$defs`, and by kind and method the name of each shape among them."""
    text = resources.files(__package__).joinpath("shapes.json").read_bytes()
    made: dict[str, Any] = msgspec.json.decode(text)
    return made


@functools.cache
def judge(kind: str, method: str, revision: str, *, nulls: bool = False) -> Judge | None:
    """What judges payloads of a method in a revision; None where no shape is known.

    Args:
        kind: `requests`, `notifications`, `results` or `definitions`.
        method: the method; for results also `task` and `input_required`.
        revision: one of `REVISIONS`.
        nulls: whether null stands for a member that may be left out.
    """
    era = document()[ERA[revision]]
    name = era[kind].get(method)
    if name is None:
        return None
    later, lists = (
        {span.name for span in table()[what] if not span.holds(revision)}
        for what in ("blocks", "lists")
    )
    definitions = {
        key: _without_later(value, later, lists, nulls=nulls)
        for key, value in _reachable(name, era["$defs"]).items()
    }
    schema = {"$ref": f"#/$defs/{name}", "$defs": definitions}
    return judge_with(
        jsonschema_rs.Draft202012Validator(schema, offline=True, validate_formats=False)
    )


def _reachable(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions that one needs, itself among them."""
    need = [name]
    seen: dict[str, Any] = {}
    while need:
        current = need.pop()
        if current not in seen:
            seen[current] = definitions[current]
            need += _references(definitions[current])
    return seen


def _references(schema: Any) -> list[str]:
    """Names of the definitions that a schema refers to."""
    found_: list[str] = []

    def one(node: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in node:
            found_.append(str(node["$ref"]).rsplit("/", 1)[-1])
        return node

    each_subschema(schema, one)
    return found_


def _without_later(schema: Any, later: set[str], lists: set[str], *, nulls: bool) -> Any:
    """A schema without the blocks and lists of blocks that came later.

    With `nulls`, null stands for a member that may be left out.
    """

    def one(node: dict[str, Any]) -> dict[str, Any]:
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

    return each_subschema(schema, one)


def _with_method(method: pl.Expr, params: pl.Expr) -> pl.Expr:
    """The text of a message from its method, a name of ours, and its params' text."""
    begin = pl.concat_str(pl.lit('{"method":"'), method, pl.lit('"'))
    member = pl.concat_str(pl.lit(',"params":'), params)
    return pl.concat_str(begin, pl.coalesce(member, pl.lit("")), pl.lit("}"))


def _requests(traffic: Traffic) -> pl.DataFrame:
    """Requests whose shape no column settles, as `text`."""
    asks = traffic.events.asks.select(
        "row", "params", "meta_capabilities", has_params=pl.lit(value=True)
    )
    rows = traffic.calls.filter(
        ~pl.col("truncated"), pl.col("method").is_in(sorted(names("request")))
    ).join(asks, on="row", how="left", maintain_order="left")
    settled = pl.col("has_params").fill_null(value=False) & pl.col("params").is_null()
    # A settled call of a tool leaves only the client's own words about itself open.
    envelope = pl.concat_str(
        pl.lit('{"name":"","_meta":{"io.modelcontextprotocol/clientCapabilities":'),
        pl.coalesce("meta_capabilities", pl.lit("{}")),
        pl.lit(',"io.modelcontextprotocol/clientInfo":'),
        pl.coalesce("meta_client_info", pl.lit('{"name":"","version":""}')),
        pl.lit("}}"),
    )
    said = pl.col("meta_capabilities").is_not_null() | pl.col("meta_client_info").is_not_null()
    return rows.filter(~settled | ((pl.col("revision") == MODERN) & said)).with_columns(
        kind=pl.lit("requests"),
        shape="method",
        text=_with_method(pl.col("method"), pl.when(settled).then(envelope).otherwise("params")),
    )


def _notifications(traffic: Traffic) -> pl.DataFrame:
    """Notifications, as `text`."""
    asks = traffic.events.asks.select("row", "params")
    return (
        traffic.messages.filter(
            pl.col("kind") == "notification",
            ~pl.col("truncated"),
            pl.col("method").is_in(sorted(names("notification"))),
        )
        .join(asks, on="row", how="left", maintain_order="left")
        .with_columns(
            kind=pl.lit("notifications"),
            shape="method",
            text=_with_method(pl.col("method"), pl.col("params")),
        )
    )


def _results(traffic: Traffic) -> pl.DataFrame:
    """Results whose shape no column settles, as `text`."""
    replies = traffic.events.replies.select(
        "odd", "text_only", "meta_server_info", "meta_subscription", reply_row="row"
    )
    texts = traffic.events.replies.select("response", reply_row="row")
    rows = traffic.calls.filter(
        ~pl.col("error_reply"),
        ~pl.col("reply_truncated"),
        "has_response",
        pl.col("method").is_in(sorted(names("request"))),
    ).join(replies, on="reply_row", how="left", maintain_order="left")
    modern = pl.col("revision") == MODERN
    named = pl.col("meta_server_info").is_not_null() | pl.col("meta_subscription").is_not_null()
    settled = (
        (pl.col("method") == "tools/call")
        & (pl.col("content_kind") == "array")
        & pl.col("text_only")
        & ~pl.col("odd")
        & (pl.col("structured_object").fill_null(value=True) | modern)
        & (~pl.col("has_meta") | named)
        & (pl.col("result_type").is_null() | (pl.col("result_type") == "complete"))
    )
    about_server = pl.concat_str(
        pl.lit('{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":'),
        "meta_server_info",
        pl.lit("}}"),
    )
    shape = (
        pl.when(modern & (pl.col("result_type") == "input_required"))
        .then(pl.lit("input_required"))
        .when(modern & pl.col("result_type").ne_missing(pl.lit("complete")))
        .then(pl.when(pl.col("result_type").is_null()).then("method"))
        .when(~modern & (pl.col("outcome") == "task"))
        .then(pl.lit("task"))
        .otherwise("method")
    )
    return (
        rows.filter(~settled | (modern & pl.col("meta_server_info").is_not_null()))
        .with_columns(settled=settled, shape=shape)
        .drop_nulls("shape")
        .join(texts, on="reply_row", how="left", maintain_order="left")
        .with_columns(
            kind=pl.lit("results"),
            text=pl.when("settled").then(about_server).otherwise("response"),
        )
    )


def _errors(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Errors that are no object with a code and a message."""
    replies = traffic.events.replies.select("odd", "response", reply_row="row")
    rows = (
        traffic.calls.filter("error_reply", ~pl.col("reply_truncated"), "has_response")
        .join(replies, on="reply_row", how="left", maintain_order="left")
        .filter(pl.col("odd") | pl.col("error_code").is_null() | pl.col("error_message").is_null())
    )
    if not rows.height:
        return
    by_schema = judge_with(jsonschema_rs.Draft202012Validator(ERROR_SCHEMA))
    texts = rows.get_column("response").unique()
    said = [judge_value(by_schema, text) for text in texts]
    judged = _frame({"response": texts}, said)
    yield findings_of(
        "protocol.error_shape",
        rows.join(judged, on="response", maintain_order="left").filter(
            pl.col("state") == "invalid"
        ),
        formatted("the error {}", "words"),
        evidence="response",
        path=pl.lit("/error") + pl.col("place"),
    )


def _judged(rows: pl.DataFrame, rule: str, *, prefix: str = "") -> Iterator[pl.DataFrame]:
    """Findings of `rule` on rows with `kind`, `shape`, `revision` and `text`."""
    rows = rows.filter(pl.col("revision").is_in(REVISIONS), pl.col("text").is_not_null())
    keys = ["kind", "shape", "revision", "text"]
    # Grouped with the places of their rows: long texts are hashed once and never joined.
    distinct = rows.with_row_index("at").group_by(keys).agg("at")
    said = []
    for kind, shape, revision, text in distinct.select(keys).iter_rows():
        strict = judge(kind, shape, revision)
        state, words, place = ("valid", None, None) if strict is None else judge_value(strict, text)
        if state == "invalid":
            lenient = judge(kind, shape, revision, nulls=True)
            if lenient is not None and judge_value(lenient, text)[0] == "valid":
                state = "null"
        said.append((state, words, place))
    judged = (
        _frame({"at": distinct.get_column("at")}, said)
        .filter(pl.col("state") != "valid")
        .explode("at")
        .sort("at")
    )
    wrong = pl.concat([rows[judged.get_column("at")], judged.drop("at")], how="horizontal")
    for state, name in (("invalid", rule), ("null", "protocol.null_member")):
        yield findings_of(
            name,
            wrong.filter(pl.col("state") == state),
            _message(state),
            evidence="text",
            path=pl.lit(prefix) + pl.col("place"),
        )


def _frame(
    keys: dict[str, pl.Series], said: list[tuple[str, str | None, str | None]]
) -> pl.DataFrame:
    columns: Any = list(zip(*said, strict=True)) if said else [(), (), ()]
    named = dict(zip(("state", "words", "place"), columns, strict=True))
    return pl.DataFrame(keys | {k: pl.Series(k, v, dtype=pl.String) for k, v in named.items()})


def _message(state: str) -> pl.Expr:
    """The words of a finding: which member, and what it is."""
    member = pl.col("place").str.extract(r"([^/]*)$")
    words = (
        pl.when(pl.col("place") == "")
        .then(formatted("the {} {}", pl.col("kind").str.strip_suffix("s"), "words"))
        .otherwise(formatted("{} {}", member, "words"))
    )
    return words if state == "invalid" else formatted("{}, and may be left out", words)
