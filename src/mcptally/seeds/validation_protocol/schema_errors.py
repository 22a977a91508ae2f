"""Checks arguments against an inputSchema; messages name the parameter and the expected value."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from mcptally.errors import near
from mcptally.jsonschemas import validators
from mcptally.jsonschemas.cost import ErrorCost, collect_errors
from mcptally.jsonschemas.dialects import UnusableSchemaError, dialect_of, parse_schema
from mcptally.seeds.validation_protocol.argument_semantics import Remark


def schema_remarks(schema: str, arguments: Any) -> Iterator[Remark]:
    """Yield remarks about arguments that violate a schema; unknown parameters are warnings."""
    judge = validators.compile_validator(schema)
    if isinstance(judge, str):
        why = f"the tool's inputSchema cannot be used: {judge}"
        yield Remark("unchecked", "", f"arguments against their schema ({why})")
        return
    state, reason, path = judge(arguments)
    found = list(_errors(schema, arguments)) if state == "invalid" else []
    if state == "invalid" and not found:
        found = [Remark("error", _dotted((path or "").split("/")[1:]), reason or "is invalid")]
    yield from dict.fromkeys(found)
    if state == validators.UNUSABLE_SCHEMA:
        yield Remark("unchecked", "", f"arguments against their schema ({reason})")
    try:
        yield from _unknown_parameters(parse_schema(schema), arguments, ())
    except UnusableSchemaError:
        return


def _errors(schema: str, arguments: Any) -> Iterator[Remark]:
    """Yield the errors that jsonschema-rs finds; nothing if it rejects the schema."""
    try:
        value = parse_schema(schema)
        name = dialect_of(value)
        value = validators.without_schema_keyword(value)
        engine = validators.compile_engine(name, value)
        errors = collect_errors(engine, ErrorCost(value), arguments)
    except validators.ENGINE_ERRORS:  # also `UnusableSchemaError`
        return
    for error in errors:
        path = [str(part) for part in error.instance_path]
        yield from _remarks(error, path)


def _remarks(error: Any, path: Sequence[str]) -> Iterator[Remark]:
    name, detail = error.kind.name, error.kind.as_dict()
    if name == "required":
        yield Remark("error", _dotted((*path, detail["property"])), "Missing required parameter")
    elif name == "type":
        kinds = " or ".join(sorted(detail.get("types", ())))
        yield Remark(
            "error", _dotted(path), f"expected {kinds}, got {validators.json_type(error.instance)}"
        )
    elif name in ("enum", "const"):
        allowed = detail.get("options", detail.get("expected_value"))
        given = msgspec.json.encode(error.instance).decode()[:80]
        yield Remark("error", _dotted(path), f"must be one of {_shortened(allowed)}, got {given}")
    elif name in ("additionalProperties", "unevaluatedProperties"):
        for extra in detail.get("unexpected", ()):
            yield Remark(
                "error", _dotted((*path, extra)), "is not in the schema, which allows no others"
            )
    else:
        yield Remark("error", _dotted(path), error.message[:300])


def _shortened(allowed: Any) -> str:
    items = allowed if isinstance(allowed, list) else [allowed]
    shown = ", ".join(msgspec.json.encode(item).decode() for item in items[:20])
    return shown + (", …" if len(items) > 20 else "")


def _unknown_parameters(schema: Any, value: Any, path: tuple[str, ...]) -> Iterator[Remark]:
    """Yield warnings about parameters that the schema neither names nor forbids."""
    if not isinstance(schema, dict) or not isinstance(value, dict) or len(path) > 20:
        return
    properties = schema.get("properties")
    is_complete = "additionalProperties" not in schema and not schema.keys() & _OTHER_SOURCES
    if not isinstance(properties, dict):
        return
    for name, item in value.items():
        if name in properties:
            yield from _unknown_parameters(properties[name], item, (*path, name))
        elif is_complete:
            hint = near(name, properties)
            yield Remark("warning", _dotted((*path, name)), f"is not in the schema{hint}")


_OTHER_SOURCES: Final = frozenset(
    {"patternProperties", "allOf", "anyOf", "oneOf", "$ref", "unevaluatedProperties"}
)
"""Keywords that may declare parameters outside `properties`."""


def _dotted(path: Sequence[str]) -> str:
    """Join member names and indices in the notation `a.b[0]`."""
    return "".join(
        f"[{part}]" if part.isdigit() else f".{part}" if place else part
        for place, part in enumerate(path)
    )
