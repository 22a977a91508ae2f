"""Compiles untrusted schemas to validators whose messages do not depend on the engine.

The fast engine is jsonschema-rs; schemas that it rejects go to jsonschema, the reference engine.
Both treat `format` as an annotation, not an assertion (the default in 2020-12). See
docs/design/protocol.md for the reasons.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import jsonschema_rs
import msgspec

from mcptally.jsonschemas.cost import ErrorCost, collect_errors, max_value_depth, may_be_costly
from mcptally.jsonschemas.dialects import (
    ENGINES,
    UnusableSchemaError,
    dialect_of,
    first_fault,
    nesting_depth,
    parse_schema,
)
from mcptally.jsonschemas.patterns import MAX_CACHED_SCHEMAS, may_have_patterns, pattern_options
from mcptally.jsonschemas.walk import pointer

UNUSABLE_SCHEMA: Final = "unusable_schema"

ValidationResult = tuple[str, str | None, str | None]
"""State (`valid`, `invalid` or `unusable_schema`), message and JSON Pointer of the first error."""

MAX_CHARS_FOR_JSONSCHEMA: Final = 1 << 15
"""Maximum length of a schema with which jsonschema validates."""

VALID: Final[ValidationResult] = ("valid", None, None)

Validator = Callable[[Any], ValidationResult]
"""A function that validates a JSON value."""


def compile_validator(text: str) -> Validator | str:
    """Compile a schema's JSON text; return an error message instead if the schema is unusable."""
    return _validator_with_patterns(text) if may_have_patterns(text) else _judge_without(text)


def _judge_of(text: str) -> Validator | str:
    try:
        schema = parse_schema(text)
        name = dialect_of(schema)
        limit = max_value_depth(schema) if may_be_costly(text) else None
    except UnusableSchemaError as error:
        return f"{error}"
    schema = without_schema_keyword(schema)
    try:
        judge = validator_from_engine(compile_engine(name, schema), schema)
    except ENGINE_ERRORS as error:
        refused = f"{getattr(error, 'message', None) or error}"
        reference = _reference_judge(name, schema)
        if reference is None:
            return refused[:500]
        judge = reference
    return judge if limit is None else _bounded(judge, limit)


_judge_without: Final = functools.lru_cache(maxsize=8192)(_judge_of)
# Cache few schemas with patterns: compiled patterns may take a thousand times as much memory as the
# rest of a schema.
_validator_with_patterns: Final = functools.lru_cache(maxsize=MAX_CACHED_SCHEMAS)(_judge_of)


ENGINE_ERRORS: Final = (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError)
"""Exceptions that `compile_engine` raises if the fast engine rejects a schema."""


def without_schema_keyword(schema: Any) -> Any:
    """Return a copy of a schema without `$schema`, as `compile_engine` requires."""
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key != "$schema"}


def compile_engine(name: str, schema: Any) -> Any:
    """Compile an untrusted schema for the fast engine.

    Args:
        name: the schema's dialect.
        schema: the schema, without `$schema`.

    Raises:
        jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError: the engine
        rejects the schema.
    """
    return ENGINES[name](
        schema, offline=True, validate_formats=False, pattern_options=pattern_options(schema)
    )


def validate_json(judge: Validator, text: str | bytes) -> ValidationResult:
    """Validate a JSON string with a validator; a string that cannot be decoded is invalid."""
    try:
        return judge(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        return "invalid", f"cannot be read: {error}", ""


def validator_from_engine(validator: Any, schema: Any = None) -> Validator:
    """Wrap a jsonschema-rs validator as a `Validator`.

    Args:
        validator: an instance of a class in `ENGINES`.
        schema: the schema, if it is untrusted: the cost of collecting errors is then limited.
    """
    cost = None if schema is None else ErrorCost(schema)

    def judge(value: Any) -> ValidationResult:
        try:
            if validator.is_valid(value):
                return VALID
            errors = [
                (_place(e.instance_path), _message(e.kind.name, e.kind.as_dict(), e.instance))
                for e in collect_errors(validator, cost, value)
            ]
        except ValueError as error:  # the value is nested too deeply for the engine
            return UNUSABLE_SCHEMA, f"{error}"[:500], None
        return _first(errors) if errors else ("invalid", "does not match the schema", "")

    return judge


def _reference_judge(name: str, schema: Any) -> Validator | None:
    """Return a validator that uses jsonschema, or None if jsonschema cannot be used."""
    if len(msgspec.json.encode(schema)) > MAX_CHARS_FOR_JSONSCHEMA or first_fault(name, schema):
        return None
    from mcptally.jsonschemas import reference_engine  # noqa: PLC0415 - 0.1 s, seldom needed

    find_errors = reference_engine.error_finder(name, schema)
    if find_errors is None:
        return None
    cost = ErrorCost(schema)

    def judge(value: Any) -> ValidationResult:
        if cost.is_costly(value):
            return UNUSABLE_SCHEMA, "validating such a value would take too long", None
        try:
            errors = [
                (_place(e.absolute_path), _message(*_like_fast(e), e.instance))
                for e in find_errors(value)
            ]
        except reference_engine.UNDECIDED as error:
            return UNUSABLE_SCHEMA, f"{type(error).__name__}: {error}"[:500], None
        return _first(errors) if errors else VALID

    return judge


def _bounded(judge: Validator, limit: int) -> Validator:
    """Return a validator that refuses to validate values nested deeper than `limit`."""

    def judge_shallow(value: Any) -> ValidationResult:
        if nesting_depth(value) > limit:
            return (
                UNUSABLE_SCHEMA,
                f"validating a value nested deeper than {limit} may take too long",
                None,
            )
        return judge(value)

    return judge_shallow


def _first(errors: Iterable[tuple[tuple[str, ...], str]]) -> ValidationResult:
    """Return the least nested error as a result.

    Path and message break ties, because engines order errors differently.
    """
    place, message = min(errors, key=lambda error: (len(error[0]), error))
    return "invalid", message[:500], pointer(place)


def _place(parts: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(str, parts))


def _like_fast(error: Any) -> tuple[str, dict[str, Any]]:
    """Convert a jsonschema error to the keyword and details that jsonschema-rs would give."""
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
    """Return the name at the start of a jsonschema message; the error has no field for the name."""
    return next((name for name in names if message.startswith(f"{name!r} is ")), "")


def _message(name: str, detail: dict[str, Any], value: Any) -> str:
    """Return an error's message. It omits the value, so that equal errors have equal messages."""
    if name == "type":
        kinds = sorted(detail.get("types", ()))
        own = json_type(value)
        return f"is {_ARTICLES.get(own, 'a ')}{own}, not {' or '.join(kinds)}"
    if name == "required":
        return f"lacks the member {detail.get('property')!r}"
    if name in {"additionalProperties", "unevaluatedProperties"}:
        extra = sorted(map(str, detail.get("unexpected", ())))
        return "has members that the schema does not allow" + (
            f": {', '.join(map(repr, extra[:5]))}" if extra else ""
        )
    known = _MESSAGES.get(name)
    return f"does not satisfy {name}" if known is None else known.format(_limit(detail))


_MESSAGES: Final = {
    "enum": "is none of the allowed values",
    "const": "is not the only allowed value",
    "minimum": "is less than {}",
    "maximum": "is greater than {}",
    "exclusiveMinimum": "is not greater than {}",
    "exclusiveMaximum": "is not less than {}",
    "multipleOf": "is not a multiple of {}",
    "minLength": "is shorter than {} characters",
    "maxLength": "is longer than {} characters",
    "minItems": "has fewer than {} items",
    "maxItems": "has more than {} items",
    "minProperties": "has fewer than {} members",
    "maxProperties": "has more than {} members",
    "pattern": "does not match the pattern",
    "uniqueItems": "has an item twice",
    "contains": "has no item that matches contains",
    "minContains": "has too few items that match contains",
    "maxContains": "has too many items that match contains",
    "anyOf": "matches none of the allowed shapes",
    "oneOf": "does not match exactly one of the allowed shapes",
    "not": "matches what is not allowed",
    "falseSchema": "is not allowed here",
    "propertyNames": "has a member with a name that is not allowed",
}
"""Maps keywords to messages; `{}` is a placeholder for the keyword's limit."""


def _limit(detail: dict[str, Any]) -> str:
    return str(detail.get("limit", detail.get("multiple_of", "")))[:40]


def json_type(value: Any) -> str:
    """Return the name of a value's JSON type."""
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
