"""Calls against the schemas of their tools: arguments and output, each distinct value once.

jsonschema-rs judges, where it agrees with jsonschema; what it refuses to compile and jsonschema
does not, jsonschema judges. Formats are annotations in both and never assertions (2020-12's
default). A schema that neither takes is a finding about the tool, never about a call.
Why so: docs/decisions/0030.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import jsonschema_rs
import msgspec
import polars as pl

from mcptally.jsonschemas.cost import deepest_value, errors_of, is_costly, may_explode
from mcptally.jsonschemas.dialects import ENGINES, UnusableError, depth, dialect, read
from mcptally.jsonschemas.patterns import FEW, may_hold_patterns, options
from mcptally.jsonschemas.walk import pointer
from mcptally.rules.findings import findings_of, together
from mcptally.tables.formatting import formatted
from mcptally.tables.joins import left_join_columns

UNUSABLE: Final = "unusable_schema"

Judgement = tuple[str, str | None, str | None]
"""State (`valid`, `invalid` or `unusable_schema`), the first error's words and JSON Pointer."""

VALID: Final[Judgement] = ("valid", None, None)

Judge = Callable[[Any], Judgement]
"""Judges a JSON value."""


def judge_of(text: str) -> Judge | str:
    """What judges values by a schema's JSON text, or in words why nothing can."""
    return _judge_with_patterns(text) if may_hold_patterns(text) else _judge_without(text)


def _judge_of(text: str) -> Judge | str:
    try:
        schema = read(text)
        name = dialect(schema)
        limit = deepest_value(schema) if may_explode(text) else None
    except UnusableError as error:
        return f"{error}"
    schema = without_dialect(schema)
    try:
        judge = judge_with(engine_of(name, schema), schema)
    except REFUSED as error:
        refused = f"{getattr(error, 'message', None) or error}"
        slow = _slow(name, schema)
        if slow is None:
            return refused[:500]
        judge = slow
    return judge if limit is None else _bounded(judge, limit)


_judge_without: Final = functools.lru_cache(maxsize=8192)(_judge_of)
# A compiled pattern may take a thousand times the memory of all else in a schema.
_judge_with_patterns: Final = functools.lru_cache(maxsize=FEW)(_judge_of)


REFUSED: Final = (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError)
"""What `engine_of` raises where the fast engine does not take a schema."""


def without_dialect(schema: Any) -> Any:
    """A schema as `engine_of` takes it: its dialect is told apart from it."""
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key != "$schema"}


def engine_of(name: str, schema: Any) -> Any:
    """The fast engine of a stranger's schema without `$schema`, in a dialect of `ENGINES`.

    Raises:
        jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError: it refuses it.
    """
    return ENGINES[name](
        schema, offline=True, validate_formats=False, pattern_options=options(schema)
    )


def judge_value(judge: Judge, text: str) -> Judgement:
    """Whether one JSON text satisfies a schema."""
    try:
        return judge(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        return "invalid", f"cannot be read: {error}", ""


def judge_with(validator: Any, schema: Any = None) -> Judge:
    """What judges values by a validator of jsonschema-rs.

    Args:
        validator: one of `ENGINES`, made of a schema.
        schema: the schema, if it is a stranger's: then it may cost too much to have all errors.
    """

    def judge(value: Any) -> Judgement:
        try:
            if validator.is_valid(value):
                return VALID
            said = [
                (_place(e.instance_path), _words(e.kind.name, e.kind.as_dict(), e.instance))
                for e in errors_of(validator, schema, value)
            ]
        except ValueError as error:  # nested deeper than the engine goes
            return UNUSABLE, f"{error}"[:500], None
        return _first(said) if said else ("invalid", "breaks the schema", "")

    return judge


def _slow(name: str, schema: Any) -> Judge | None:
    """A judge by jsonschema, if the schema is one and has nothing that Python's `re` would run."""
    from mcptally.jsonschemas import reference_engine  # noqa: PLC0415 - a tenth of a second, seldom needed

    errors_of = reference_engine.judge_by(name, schema)
    if errors_of is None:
        return None

    def judge(value: Any) -> Judgement:
        if is_costly(schema, value):
            return UNUSABLE, "to judge such a value by it would take too long", None
        try:
            errors = [
                (_place(e.absolute_path), _words(*_like_fast(e), e.instance))
                for e in errors_of(value)
            ]
        except reference_engine.UNDECIDED as error:
            return UNUSABLE, f"{type(error).__name__}: {error}"[:500], None
        return _first(errors) if errors else VALID

    return judge


def _bounded(judge: Judge, limit: int) -> Judge:
    def judge_shallow(value: Any) -> Judgement:
        if depth(value) > limit:
            return UNUSABLE, f"judging a value nested deeper than {limit} may never end", None
        return judge(value)

    return judge_shallow


def _first(errors: Iterable[tuple[tuple[str, ...], str]]) -> Judgement:
    """The error highest up, then first by path and words: the same whatever engine found them."""
    place, words = min(errors, key=lambda error: (len(error[0]), error))
    return "invalid", words[:500], pointer(place)


def _place(parts: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(str, parts))


def _like_fast(error: Any) -> tuple[str, dict[str, Any]]:
    """A keyword of jsonschema and its value as the fast engine has them."""
    name, value = error.validator, error.validator_value
    if name is None or (value is False and name == "items"):
        return "falseSchema", {}
    if name == "type":
        return name, {"types": [value] if isinstance(value, str) else value}
    if name == "required":
        return name, {"property": _first_of(value, error.message)}
    if name in {"dependentRequired", "dependencies"}:
        needed = [each for names in value.values() if isinstance(names, list) for each in names]
        return "required", {"property": _first_of(needed, error.message)}
    return name, {"limit": value}


def _first_of(names: Iterable[Any], message: str) -> str:
    """The name that a message of jsonschema begins with: it is told nowhere else."""
    return next((name for name in names if message.startswith(f"{name!r} is ")), "")


def _words(name: str, detail: dict[str, Any], value: Any) -> str:
    """What is wrong with a value, without the value: the same words for the same fault."""
    if name == "type":
        kinds = sorted(detail.get("types", ()))
        own = kind(value)
        return f"is {_ARTICLES.get(own, 'a ')}{own}, not {' or '.join(kinds)}"
    if name == "required":
        return f"lacks the member {detail.get('property')!r}"
    if name in {"additionalProperties", "unevaluatedProperties"}:
        extra = sorted(map(str, detail.get("unexpected", ())))
        return "has members that the schema does not allow" + (
            f": {', '.join(map(repr, extra[:5]))}" if extra else ""
        )
    known = _SAID.get(name)
    return f"breaks {name}" if known is None else known.format(_shown(detail))


_SAID: Final = {
    "enum": "is none of the allowed values",
    "const": "is not the one allowed value",
    "minimum": "is less than {}",
    "maximum": "is greater than {}",
    "exclusiveMinimum": "is not greater than {}",
    "exclusiveMaximum": "is not less than {}",
    "multipleOf": "is no multiple of {}",
    "minLength": "is shorter than {} characters",
    "maxLength": "is longer than {} characters",
    "minItems": "has fewer than {} items",
    "maxItems": "has more than {} items",
    "minProperties": "has fewer than {} members",
    "maxProperties": "has more than {} members",
    "pattern": "does not match the pattern",
    "uniqueItems": "has an item twice",
    "contains": "has no item of the kind it has to contain",
    "minContains": "has too few items of the kind it has to contain",
    "maxContains": "has too many items of a kind",
    "anyOf": "matches none of the allowed shapes",
    "oneOf": "does not match exactly one of the allowed shapes",
    "not": "matches what is not allowed",
    "falseSchema": "is not allowed here",
    "propertyNames": "has a member with a name that is not allowed",
}
"""Keyword → words; `{}` stands for the limit."""


def _shown(detail: dict[str, Any]) -> str:
    return str(detail.get("limit", detail.get("multiple_of", "")))[:40]


def kind(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    kinds = ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"))
    for cls, name in (*kinds, (list, "array"), (dict, "object")):
        if isinstance(value, cls):
            return name
    return "something else"


_ARTICLES: Final = {
    "null": "",
    "something else": "",
    "integer": "an ",
    "array": "an ",
    "object": "an ",
}


def validate(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """`calls` with the columns `input_schema_…` and `output_schema_…`: state, error, path.

    Args:
        calls: has `call_id`, `tool`, `definition`, `outcome`, `arguments`, `truncated`,
            `structured_content`, `response` and `reply_truncated`.
        definitions: `definition`, `input_schema` and `output_schema` (JSON text).
    """
    schemas = definitions.select("definition", "input_schema", "output_schema").unique("definition")
    texts = pl.concat([schemas.get_column(f"{side}_schema") for side in ("input", "output")])
    numbered = (
        pl.DataFrame({"schema": texts.drop_nulls().unique(maintain_order=True)})
        .with_row_index("number")
        .select("schema", "number")
    )
    numbers = schemas.select(
        "definition",
        *(
            schemas.select(schema=f"{side}_schema")
            .join(numbered, on="schema", how="left", maintain_order="left")
            .get_column("number")
            .alias(f"{side}_number")
            for side in ("input", "output")
        ),
    )
    tool = pl.col("tool").is_not_null()
    # Without responses, which may be large: few are asked for.
    rows = calls.select(
        "call_id",
        "definition",
        "outcome",
        row=pl.int_range(pl.len(), dtype=pl.UInt32),
        whole=~pl.col("truncated") & ~pl.col("reply_truncated").fill_null(value=False),
        # A call without arguments is a call with none: servers see an empty object.
        given=pl.when(tool & ~pl.col("truncated")).then(pl.coalesce("arguments", pl.lit("{}"))),
        output="structured_content",
    ).join(numbers, on="definition", how="left", maintain_order="left")
    asked = rows.filter(pl.col("input_number").is_not_null() & pl.col("given").is_not_null())
    answered = _with_json_text(
        rows.filter(
            pl.col("output_number").is_not_null()
            & pl.col("outcome").is_in(["ok", "hidden_error"])
            & pl.col("whole")
        ),
        calls.get_column("response"),
    )
    schema_texts = numbered.get_column("schema").to_list()
    inputs = _judged(
        asked.select("call_id", number="input_number", value="given"), schema_texts, "input_schema"
    )
    outputs = _judged(
        answered.select("call_id", number="output_number", value="output"),
        schema_texts,
        "output_schema",
    )
    return (
        left_join_columns(left_join_columns(calls, inputs, "call_id"), outputs, "call_id")
        .with_columns(
            _unless_redacted("input_schema_state", "arguments"),
            _unless_redacted("output_schema_state", "response"),
        )
        .with_columns(
            pl.when(tool)
            .then(pl.col("input_schema_state", "output_schema_state").fill_null("none"))
            .name.keep()
        )
    )


REDACTED: Final = r"\[(?:redacted|hashed):"
"""What the recorder puts in the place of a secret; the value that was there may have been valid."""


def _unless_redacted(state: str, value: str) -> pl.Expr:
    """A state, or null where what breaks the schema may be what redaction put there."""
    invalid = pl.col(state) == "invalid"
    redacted = pl.when(invalid).then(pl.col(value)).str.contains(REDACTED)
    return pl.when(~redacted.fill_null(value=False)).then(pl.col(state))


def _with_json_text(rows: pl.DataFrame, every: pl.Series) -> pl.DataFrame:
    """`output` of results without structuredContent: their first text that is JSON.

    `every` has the responses of all calls; `row` says which is whose.
    """
    bare = rows.filter(pl.col("output").is_null()).select("row")
    bare = bare.with_columns(every.gather(bare.get_column("row")).alias("response"))
    bare = bare.drop_nulls("response")
    if not bare.height:
        return rows
    responses = bare.get_column("response").unique()
    found = pl.DataFrame(
        {
            "response": responses,
            "first_json": pl.Series([first_json_text(r) for r in responses], dtype=pl.String),
        }
    )
    known = bare.join(found, on="response", how="left").select("row", "first_json")
    return left_join_columns(rows, known, "row").with_columns(
        output=pl.coalesce("output", "first_json")
    )


class _Text(msgspec.Struct):
    type: object = None
    text: object = None


class _Content(msgspec.Struct):
    content: list[_Text] = []


def first_json_text(response: str) -> str | None:
    """The first text block of a tool's result that is a JSON object or array, if any is."""
    try:
        blocks = msgspec.json.decode(response, type=_Content).content
    except (msgspec.DecodeError, RecursionError):
        return None
    for block in blocks:
        text = block.text
        if block.type == "text" and isinstance(text, str) and text.lstrip()[:1] in {"{", "["}:
            try:
                msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                continue
            return text
    return None


def _judged(rows: pl.DataFrame, schemas: list[str], prefix: str) -> pl.DataFrame:
    """Judgements of (schema, value) pairs, by `call_id`."""
    distinct = rows.group_by("number", "value").agg("call_id").sort("number")
    states: list[Judgement] = []
    for number, value in zip(
        distinct.get_column("number").to_list(), distinct.get_column("value").to_list(), strict=True
    ):
        judge = judge_of(schemas[number])
        if isinstance(judge, str):
            states.append((UNUSABLE, judge, None))
        elif value is None:
            states.append(("missing_output", None, None))
        else:
            states.append(judge_value(judge, value))
    names = [f"{prefix}_{name}" for name in ("state", "error", "path")]
    judged = pl.DataFrame(states, schema=dict.fromkeys(names, pl.String), orient="row")
    return judged.with_columns(distinct.get_column("call_id")).explode("call_id")


def find(calls: pl.DataFrame) -> pl.DataFrame:
    """Findings about what `validate` says of calls: arguments and output that break a schema."""
    wrong = calls.filter(pl.col("input_schema_state") == "invalid")
    output = pl.col("output_schema_state")
    return together(
        [
            findings_of(
                "schema.arguments_invalid",
                wrong,
                _about("input_schema_path", "input_schema_error", "arguments"),
                evidence="arguments",
                path="input_schema_path",
            ),
            findings_of(
                "schema.invalid_arguments_accepted",
                wrong.filter(pl.col("outcome") == "ok"),
                "the server accepted arguments that break its schema",
                path="input_schema_path",
            ),
            findings_of(
                "schema.output_invalid",
                calls.filter(output == "invalid"),
                _about("output_schema_path", "output_schema_error", "output"),
                evidence=pl.coalesce("structured_content", "first_text"),
                path="output_schema_path",
            ),
            findings_of(
                "schema.output_missing",
                calls.filter(output == "missing_output"),
                "the tool has an outputSchema, the result no structured output",
            ),
        ]
    )


def _about(path: str, words: str, whole: str) -> pl.Expr:
    """What is wrong with which member."""
    member = pl.col(path).str.extract(r"([^/]*)$")
    return (
        pl.when(pl.col(path).fill_null("") == "")
        .then(formatted("{} {}", pl.lit(whole), words))
        .otherwise(formatted("{} {}", member, words))
    )
