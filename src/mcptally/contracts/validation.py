"""Dry runs that servers were asked for: recognised, read, and set against the real calls.

A call of a tool `validate` (with or without a namespace), or of the method `tools/validate`, whose
arguments name a tool and its arguments. What such calls say is gathered by partition and known to
the whole archive, because the real call may be in another recording.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from mcptally import judge
from mcptally import rules as rule_files
from mcptally.contracts.breach import Breach, findings
from mcptally.contracts.given import first_given
from mcptally.ids import digest
from mcptally.joining import beside
from mcptally.schema import TIME, Validations
from mcptally.verdict import match

NAME: Final = r"(?i)^(?:.*(?:__|[:./]))?validate$"
"""How the tool is called."""

METHOD: Final = "tools/validate"

SLOW_MS: Final = 1000.0
"""A validation is to take less (seed 002, Questions)."""

NEAR_NS: Final = 3600 * 10**9
"""Nanoseconds after which a validation in another session says nothing of a call any more."""

ANSWER: Final = ("valid", "errors", "warnings")

SCHEMA: Final = {
    "call_id": pl.String(),
    "recording": pl.String(),
    "session": pl.String(),
    "server": pl.String(),
    "native": pl.String(),
    "tool": pl.String(),
    "arguments": pl.String(),
    "same": pl.String(),
    "answered_ns": pl.Int64(),
    "latency_ms": pl.Float64(),
    "valid": pl.Boolean(),
    "errors": pl.List(pl.String),
    "warnings": pl.List(pl.String),
    "phase": pl.String(),
}
"""What is gathered of each; `same` is equal where `arguments` are, and says nothing else."""

FORETELLING: Final = ("session", "server", "tool", "same", "answered_ns", "call_id", "valid")
"""The columns that `foretold` asks for."""

_STATES: Final = (
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
)
"""What a server says when something changed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseRule(rule_files.Rule):
    """Words that show how deep a validation looks."""

    phase: str
    matches: tuple[str, ...]


class Asked(NamedTuple):
    """What a validation is asked to judge."""

    tool: str | None
    arguments: Any
    member: str | None
    """`arguments`, as the document has it, or `parameters`, as the program reads."""


class Answered(NamedTuple):
    """What a validation said."""

    valid: bool | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    breaches: tuple[Breach, ...] = ()


def asked(arguments: str | None) -> Asked:
    """What the arguments of a validation ask for."""
    value = _parsed(arguments)
    if not isinstance(value, dict):
        return Asked(None, None, None)
    tool = first_given(value, "tool", "name")
    member = next((name for name in ("arguments", "parameters") if name in value), None)
    return Asked(tool if isinstance(tool, str) else None, value.get(member or ""), member)


def answered(response: str | None) -> Answered:
    """What a validation's result says, and what is wrong with it (codes are ids of rules)."""
    value = _parsed(response)
    if not isinstance(value, dict):
        return Answered()
    place, said = _said(value)
    if said is None:
        words = "the answer is no JSON object {valid, errors, warnings}"
        return Answered(breaches=(Breach("/content", words, "validation.answer_shape"),))
    breaches = list(_shape(said, place))
    valid = said.get("valid")
    valid = valid if isinstance(valid, bool) else None
    errors, warnings = (_texts(said.get(name)) for name in ("errors", "warnings"))
    if valid is True and errors:
        words = f"valid, with {len(errors)} errors"
        breaches.append(Breach(place, words, "validation.valid_with_errors", errors[0][:200]))
    if valid is False and not errors:
        words = "invalid, and no error says why"
        breaches.append(Breach(place, words, "validation.invalid_without_errors"))
    if value.get("isError") is True:
        words = "a refusal is an answer, not an error of the tool"
        breaches.append(Breach("/isError", words, "validation.answer_is_error"))
    return Answered(valid, errors, warnings, tuple(breaches))


def _said(result: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """The answer in a result and its place: structured, in a text, or bare (of the method)."""
    inner = result.get("structuredContent")
    if isinstance(inner, dict) and "valid" in inner:
        return "/structuredContent", inner
    content = result.get("content")
    if isinstance(content, str):  # the seed's own listing puts the JSON text here
        content = [{"type": "text", "text": content}]
    for number, block in enumerate(content if isinstance(content, list) else ()):
        value = _parsed(block.get("text")) if isinstance(block, dict) else None
        if isinstance(value, dict):
            return f"/content/{number}/text", value
    return "", result if "valid" in result else None


def _shape(said: dict[str, Any], place: str) -> Iterator[Breach]:
    for name in ANSWER:
        value = said.get(name)
        if name == "valid":
            right, kind = isinstance(value, bool), "a boolean"
        else:
            right = isinstance(value, list) and all(isinstance(each, str) for each in value)
            kind = "a list of texts"
        if not right:
            missing = "is missing" if name not in said else f"is not {kind}"
            words, shown = f"{name} {missing}", str(value)[:200]
            yield Breach(f"{place}/{name}", words, "validation.answer_shape", shown)
    if extra := sorted(said.keys() - {*ANSWER}):
        words = f"says more than valid, errors, warnings: {', '.join(extra[:5])}"
        yield Breach(place, words, "validation.answer_extra")


def vague(text: str, given: Any) -> bool:
    """Whether an error names nothing: no value, no quoted thing, no place, no number.

    Naming the parameter is enough where the text says what it must be, not where it only calls it
    invalid: `path is required` helps, `Invalid path` does not.
    """
    if _NAMES.search(text):
        return False
    members = given if isinstance(given, dict) else {}
    low = text.lower()
    for name, value in members.items():
        if isinstance(value, str) and len(value) > 1 and value.lower() in low:
            return False
        if name.lower() in low and _SAYS.search(text):
            return False
    return _MISSING.search(text) is None


_NAMES: Final = re.compile(r"""["'`][^"'`]+["'`]|[/\\]\w|\w://|\d|\w_\w|[:=]\s*\S{2}""")
_SAYS: Final = re.compile(
    r"(?i)\b(?:required|missing|must|should|expected|cannot|not|exceeds?|needs?|too)\b"
)
_MISSING: Final = re.compile(
    r"(?i)\b(?:missing|required|unknown)\b.*\b(?:parameter|argument|tool)\W+\w"
)


@functools.cache
def phases() -> tuple[PhaseRule, ...]:
    """The rows, shallow to deep."""
    return rule_files.load(PhaseRule, "phases.toml")


def phase(texts: Sequence[str]) -> str | None:
    """How deep the words of an answer show a validation to look; None where they show nothing."""
    said = pl.Series(list(texts), dtype=pl.String)
    shown = [
        rule.phase for rule in phases() if said.str.contains(match.pattern(rule.matches)).any()
    ]
    return shown[-1] if shown else None


def canonical(value: Any) -> str:
    """One JSON text for equal arguments: members sorted, numbers as they are."""
    return msgspec.json.encode(value, order="deterministic").decode()


def gather(calls: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    """The validations among the paired calls of a partition: `SCHEMA`.

    `asks` has the parameters of requests (`row`, `params`), where columns do not hold them.
    """
    rows = candidates(calls, asks)
    made = []
    for row in rows.iter_rows(named=True):
        question, answer = asked(row["arguments"]), answered(row["response"])
        if question.tool is None or question.member is None:
            continue
        arguments = canonical(question.arguments)
        made.append(
            {
                **{name: row[name] for name in ("call_id", "recording", "session", "server")},
                "native": "method" if row["method"] == METHOD else "tool",
                "tool": _target(question.tool),
                "arguments": arguments,
                "same": digest(arguments),
                "answered_ns": row["reply_ns"],
                "latency_ms": row["latency_ms"],
                "valid": answer.valid,
                "errors": list(answer.errors),
                "warnings": list(answer.warnings),
                "phase": phase([*answer.errors, *answer.warnings]),
            }
        )
    return pl.DataFrame(made, schema=SCHEMA)


def candidates(calls: pl.DataFrame, asks: pl.DataFrame | None = None) -> pl.DataFrame:
    """Calls that may ask for a validation; `arguments` of the method are its parameters."""
    is_method = pl.col("method") == METHOD
    by_name = pl.col("tool").is_not_null() & pl.col("tool").str.contains(NAME)
    rows = calls.filter((pl.col("dir") == "c2s") & (is_method | by_name))
    if asks is None or not rows.filter(is_method).height:
        return rows
    params = asks.select("row", "params").drop_nulls()
    return rows.join(params, on="row", how="left", maintain_order="left").with_columns(
        arguments=pl.when(is_method).then("params").otherwise("arguments")
    )


def _target(tool: str) -> str:
    """The tool without the server before it (`server:tool`)."""
    return tool.rpartition(":")[2] or tool


def table(mine: pl.DataFrame, calls: pl.DataFrame, *, payloads: bool) -> pl.DataFrame:
    """The `validations` table of a partition; `calls` know which definitions were in force."""
    if not mine.height:
        return Validations.frame(mine)
    known = calls.filter(pl.col("definition").is_not_null(), pl.col("tool").is_not_null()).select(
        "session", "tool", "definition", asked_ns="ts_ns"
    )
    rows = (
        mine.with_columns(asked_ns=pl.col("answered_ns"))
        .sort("asked_ns", nulls_last=True)
        .join_asof(
            known.sort("asked_ns"),
            on="asked_ns",
            by=["session", "tool"],
            strategy="nearest",
            check_sortedness=False,
        )
    )
    if not payloads:
        rows = rows.with_columns(arguments=pl.lit(None, pl.String))
    return Validations.frame(
        rows.with_columns(answered_at=pl.from_epoch("answered_ns", time_unit="ns").cast(TIME))
    )


def foretold(calls: pl.DataFrame, validations: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `validated_by` and `validated_as`: what the last validation said before each."""
    said = validations.filter(pl.col("valid").is_not_null(), pl.col("answered_ns").is_not_null())
    none = {"validated_by": pl.lit(None, pl.String), "validated_as": pl.lit(None, pl.Boolean)}
    if not said.height:
        return calls.with_columns(**none)
    judged = said.select("server", "tool").unique()
    real = calls.filter(pl.col("dir") == "c2s").join(
        judged, on=["server", "tool"], how="semi", nulls_equal=True, maintain_order="left"
    )
    texts = real.get_column("arguments").fill_null("{}")
    distinct = texts.unique(maintain_order=True)
    same = pl.DataFrame(
        {"text": distinct, "same": [_same(text) for text in distinct]},
        schema={"text": pl.String, "same": pl.String},
    )
    real = (
        real.select("call_id", "session", "server", "tool", "ts_ns", text=texts)
        .join(same, on="text", how="left", maintain_order="left")
        .sort("ts_ns")
    )
    said = said.select(
        "session", "server", "tool", "same", ts_ns="answered_ns",
        validated_by="call_id", validated_as="valid",
    ).sort("ts_ns", "validated_by")  # fmt: skip
    mine = real.join_asof(
        said.drop("server"), on="ts_ns", by=["session", "tool", "same"], check_sortedness=False
    )
    theirs = real.join_asof(
        said.drop("session"),
        on="ts_ns",
        by=["server", "tool", "same"],
        tolerance=NEAR_NS,
        check_sortedness=False,
    )
    found = pl.concat(
        [part.drop_nulls("validated_by").select("call_id", *none) for part in (mine, theirs)]
    ).unique("call_id", keep="first", maintain_order=True)
    return beside(calls, found, "call_id")


def _same(text: str) -> str | None:
    value = _parsed(text)
    return None if value is None else digest(canonical(value))


# --- findings ---


def find(
    calls: pl.DataFrame, messages: pl.DataFrame, definitions: pl.DataFrame
) -> list[pl.DataFrame]:
    """What is wrong with the validations among `calls`."""
    rows = candidates(calls)
    if not rows.height:
        return []
    declared = rows.select("definition").join(
        definitions.select("definition", "input_schema"),
        on="definition",
        how="left",
        maintain_order="left",
    )
    meant = [
        method == METHOD or asked(arguments).tool is not None or _declares(schema)
        for method, arguments, schema in zip(
            rows.get_column("method"),
            rows.get_column("arguments"),
            declared.get_column("input_schema"),
            strict=True,
        )
    ]
    rows = rows.filter(pl.Series(meant, dtype=pl.Boolean))
    told = [
        (number, breach)
        for number, row in enumerate(
            rows.select("method", "arguments", "response", "outcome").iter_rows(named=True)
        )
        for breach in _breaches(row)
    ]
    slow = rows.filter(pl.col("latency_ms") > SLOW_MS)
    words = pl.format("took {} ms", pl.col("latency_ms").round(0).cast(pl.Int64))
    return [
        *findings(rows, told),
        judge.found("validation.slow", slow, words),
        _changes(rows, messages),
    ]


def _breaches(row: dict[str, Any]) -> Iterator[Breach]:
    question = asked(row["arguments"])
    if row["method"] != METHOD:
        if question.tool is None:
            yield Breach(
                "/arguments/tool", "tool is missing or no text", "validation.request_shape"
            )
        if question.member is None:
            words = "arguments are missing"
            yield Breach("/arguments/arguments", words, "validation.request_shape")
        elif not isinstance(question.arguments, dict):
            place = f"/arguments/{question.member}"
            yield Breach(place, f"{question.member} is no object", "validation.request_shape")
        if question.member == "parameters":
            words = "parameters instead of arguments"
            yield Breach("/arguments/parameters", words, "validation.request_parameters")
    if row["outcome"] in ("ok", "hidden_error", "tool_error"):
        answer = answered(row["response"])
        yield from answer.breaches
        for text in answer.errors:
            if vague(text, question.arguments):
                words = "the error names nothing that could be mended"
                yield Breach("", words, "validation.vague_error", text[:200])


def _changes(rows: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Notifications of a change that came while a validation ran."""
    said = messages.filter(pl.col("dir") == "s2c", pl.col("method").is_in(list(_STATES))).select(
        "session", change="method", said_at="pos"
    )
    during = rows.join(said, on="session").filter(pl.col("said_at").is_between("pos", "reply"))
    words = pl.format("the server said {} while it validated", "change")
    return judge.found("validation.state_change", during, words)


def _declares(schema: str | None) -> bool:
    """Whether a schema is that of the protocol, or of its program."""
    value = _parsed(schema)
    properties = value.get("properties") if isinstance(value, dict) else None
    if not isinstance(properties, dict):
        return False
    return "tool" in properties and bool(properties.keys() & {"arguments", "parameters"})


def declared(schema: str | None) -> list[str]:
    """What differs between a declared inputSchema of `validate` and the protocol's."""
    value = _parsed(schema)
    if not isinstance(value, dict):
        return ["inputSchema is no object"]
    properties = value.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = value.get("required")
    required = required if isinstance(required, list) else []
    found = []
    for name, kind in (("tool", "string"), ("arguments", "object")):
        inner = properties.get(name)
        if not isinstance(inner, dict):
            found.append(f"{name} is not declared")
        elif inner.get("type") != kind:
            found.append(f"{name} is not of type {kind}")
        elif name not in required:
            found.append(f"{name} is not required")
    return found


def find_declared(listed: pl.DataFrame, definitions: pl.DataFrame) -> list[pl.DataFrame]:
    """What the archive says of servers' validate tools: declared otherwise, or not at all."""
    known = listed.select("server", "tool", "definition").unique(maintain_order=True)
    schemas = definitions.select("definition", "input_schema").unique("definition")
    theirs = known.filter(pl.col("tool").str.contains(NAME)).join(schemas, on="definition")
    faults = [
        (number, fault)
        for number, schema in enumerate(theirs.get_column("input_schema").to_list())
        if _declares(schema) or len(declared(schema)) < 2
        for fault in declared(schema)
    ]
    rows = theirs[[number for number, _ in faults]].hstack(
        [pl.Series("fault", [fault for _, fault in faults], dtype=pl.String)]
    )
    meant = [_declares(schema) for schema in theirs.get_column("input_schema").to_list()]
    have = theirs.filter(pl.Series(meant, dtype=pl.Boolean)).select("server").unique()
    without = known.select("server").unique().join(have, on="server", how="anti", nulls_equal=True)
    return [
        judge.found("validation.declared_schema", rows, pl.col("fault"), path="/inputSchema"),
        judge.found(
            "validation.missing", without.sort("server"), "the server has no validate tool"
        ),
    ]


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list) else ()


def _parsed(text: Any) -> Any:
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
