"""Compile untrusted schemas to validators of JSON values, with the same messages for both engines.

jsonschema-rs validates. A schema that it refuses is given to jsonschema, the reference engine. Both
treat formats as annotations, never as assertions (2020-12's default).
Reasons: docs/decisions/0030.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import jsonschema_rs
import msgspec

from mcptally.jsonschemas.cost import deepest_value, errors_of, is_costly, may_explode
from mcptally.jsonschemas.dialects import ENGINES, UnusableError, depth, dialect, read
from mcptally.jsonschemas.patterns import FEW, may_hold_patterns, options
from mcptally.jsonschemas.walk import pointer

UNUSABLE: Final = "unusable_schema"

Judgement = tuple[str, str | None, str | None]
"""State (`valid`, `invalid` or `unusable_schema`), message and JSON Pointer of the first error."""

VALID: Final[Judgement] = ("valid", None, None)

Judge = Callable[[Any], Judgement]
"""Validates a JSON value."""


def judge_of(text: str) -> Judge | str:
    """Return a validator for a schema's JSON text, or a message why the schema is unusable."""
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
        reference = _reference_judge(name, schema)
        if reference is None:
            return refused[:500]
        judge = reference
    return judge if limit is None else _bounded(judge, limit)


_judge_without: Final = functools.lru_cache(maxsize=8192)(_judge_of)
# Compiled patterns may take a thousand times the memory of the rest of a schema: keep few.
_judge_with_patterns: Final = functools.lru_cache(maxsize=FEW)(_judge_of)


REFUSED: Final = (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError)
"""What `engine_of` raises if the fast engine refuses a schema."""


def without_dialect(schema: Any) -> Any:
    """Return a schema without `$schema`, as `engine_of` expects it."""
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key != "$schema"}


def engine_of(name: str, schema: Any) -> Any:
    """Return the fast engine for an untrusted schema without `$schema`, in a dialect of `ENGINES`.

    Raises:
        jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError: the engine
            refuses the schema.
    """
    return ENGINES[name](
        schema, offline=True, validate_formats=False, pattern_options=options(schema)
    )


def judge_value(judge: Judge, text: str) -> Judgement:
    """Validate a JSON text."""
    try:
        return judge(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        return "invalid", f"cannot be read: {error}", ""


def judge_with(validator: Any, schema: Any = None) -> Judge:
    """Return a validator of values that uses one of jsonschema-rs.

    Args:
        validator: one of `ENGINES`, compiled from a schema.
        schema: the schema if it is untrusted; collecting all errors is then bounded in cost.
    """

    def judge(value: Any) -> Judgement:
        try:
            if validator.is_valid(value):
                return VALID
            errors = [
                (_place(e.instance_path), _message(e.kind.name, e.kind.as_dict(), e.instance))
                for e in errors_of(validator, schema, value)
            ]
        except ValueError as error:  # nested too deeply for the engine
            return UNUSABLE, f"{error}"[:500], None
        return _first(errors) if errors else ("invalid", "does not match the schema", "")

    return judge


def _reference_judge(name: str, schema: Any) -> Judge | None:
    """Return a validator that uses jsonschema; None if it refuses the schema or would run `re`."""
    from mcptally.jsonschemas import reference_engine  # noqa: PLC0415 - 0.1 s, seldom needed

    find_errors = reference_engine.error_finder(name, schema)
    if find_errors is None:
        return None

    def judge(value: Any) -> Judgement:
        if is_costly(schema, value):
            return UNUSABLE, "validating such a value would take too long", None
        try:
            errors = [
                (_place(e.absolute_path), _message(*_like_fast(e), e.instance))
                for e in find_errors(value)
            ]
        except reference_engine.UNDECIDED as error:
            return UNUSABLE, f"{type(error).__name__}: {error}"[:500], None
        return _first(errors) if errors else VALID

    return judge


def _bounded(judge: Judge, limit: int) -> Judge:
    """Return a validator that refuses values nested deeper than `limit`."""

    def judge_shallow(value: Any) -> Judgement:
        if depth(value) > limit:
            return (
                UNUSABLE,
                f"validating a value nested deeper than {limit} may take too long",
                None,
            )
        return judge(value)

    return judge_shallow


def _first(errors: Iterable[tuple[tuple[str, ...], str]]) -> Judgement:
    """Return the topmost error, then the first by path and message: the same for both engines."""
    place, message = min(errors, key=lambda error: (len(error[0]), error))
    return "invalid", message[:500], pointer(place)


def _place(parts: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(str, parts))


def _like_fast(error: Any) -> tuple[str, dict[str, Any]]:
    """Return keyword and details of an error of jsonschema in the form of the fast engine."""
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
    """Return the name that a message of jsonschema begins with; the error has no field for it."""
    return next((name for name in names if message.startswith(f"{name!r} is ")), "")


def _message(name: str, detail: dict[str, Any], value: Any) -> str:
    """Return what is wrong with a value, without the value: equal faults have equal messages."""
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
"""Keyword → message; `{}` stands for the limit."""


def _limit(detail: dict[str, Any]) -> str:
    return str(detail.get("limit", detail.get("multiple_of", "")))[:40]


def kind(value: Any) -> str:
    """Return the JSON type of a value."""
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
