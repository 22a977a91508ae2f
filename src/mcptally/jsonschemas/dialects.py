"""Parses untrusted JSON Schemas, determines their dialect, and checks them against its metaschema.

Nothing is fetched, and Python's `re` never runs an untrusted pattern. `$schema` names the dialect;
the default is 2020-12, as in MCP 2025-11-25 (SEP-1613); older revisions do not specify a default.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from mcptally.jsonschemas.patterns import compile_pattern
from mcptally.jsonschemas.walk import MAPS, REFERENCES, References, keys, nodes_of, pointer

LATEST: Final = "2020-12"

MAX_CHARS: Final = 1 << 20
"""Maximum length of a schema's JSON text in characters; the longest recorded schema has 31,000."""

MAX_INVALID_CHARS: Final = 1 << 12
"""Maximum length of a schema's invalid parts, which jsonschema examines in 40 µs per character."""

MAX_DEPTH: Final = 100
"""Maximum nesting depth of a schema; the deepest recorded schema has 20 levels."""

_NAMES: Final = {
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "json-schema.org/schema": "2020-12",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-04/schema": "draft-04",
}

_URIS: Final = {
    name: ("https://" if name.startswith("20") else "http://") + uri
    for uri, name in _NAMES.items()
    if "/draft" in uri
}

ENGINES: Final[Mapping[str, Any]] = {
    "2020-12": jsonschema_rs.Draft202012Validator,
    "2019-09": jsonschema_rs.Draft201909Validator,
    "draft-07": jsonschema_rs.Draft7Validator,
    "draft-06": jsonschema_rs.Draft6Validator,
    "draft-04": jsonschema_rs.Draft4Validator,
}
"""Maps each dialect to the class of the fast validator, jsonschema-rs."""


class UnusableSchemaError(ValueError):
    """Raised if a schema cannot be used for validation; the message says why."""


def parse_schema(text: str) -> Any:
    """Parse a schema's JSON text and check its size and depth.

    Raises:
        UnusableSchemaError: the text is not JSON, too large, too deep, or neither an object nor a
            boolean.
    """
    if len(text) > MAX_CHARS:
        raise UnusableSchemaError(f"the schema is longer than {MAX_CHARS} characters")
    try:
        schema = msgspec.json.decode(text)
    except RecursionError:
        raise UnusableSchemaError(f"the schema is nested deeper than {MAX_DEPTH}") from None
    except msgspec.DecodeError as error:
        raise UnusableSchemaError(f"the schema is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise UnusableSchemaError("the schema is neither an object nor a boolean")
    if text.count("{") + text.count("[") >= MAX_DEPTH and nesting_depth(schema) > MAX_DEPTH:
        raise UnusableSchemaError(f"the schema is nested deeper than {MAX_DEPTH}")
    return schema


def nesting_depth(value: Any) -> int:
    """Return the nesting depth of a JSON value: 0 for a scalar, 1 for a flat array or object."""
    level, deep = [value], 0
    while nested := [v for v in level if isinstance(v, dict | list)]:
        deep += 1
        level = [w for v in nested for w in (v.values() if isinstance(v, dict) else v)]
    return deep


def dialect_of(schema: Any) -> str:
    """Return the name of the dialect in which a schema is written.

    Raises:
        UnusableSchemaError: `$schema` names an unknown dialect.
    """
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if name is None:
        return LATEST
    known = None
    if isinstance(name, str):
        known = _NAMES.get(name.removesuffix("#").removeprefix("https://").removeprefix("http://"))
    if known is None:
        raise UnusableSchemaError(f"the dialect is not known: $schema is {str(name)[:200]!r}")
    return known


def metaschema_errors(schema: Any) -> list[tuple[str, str]]:
    """Return the JSON Pointers and messages of a schema's errors by its dialect's metaschema.

    If very much of the schema is invalid, only the first error is returned.

    Raises:
        UnusableSchemaError: the dialect is unknown, or the schema is nested too deeply for
            jsonschema.
    """
    name = dialect_of(schema)
    first = first_fault(name, schema)
    part = _invalid_part(name, schema) if first else {}
    if first and len(msgspec.json.encode(part)) > MAX_INVALID_CHARS:
        limit = f"over {MAX_INVALID_CHARS} characters of the schema are invalid"
        return [(first[0], f"{first[1]} (first error only: {limit})")]
    errors = _faults(name, part) if first else ()
    found = {(pointer(e.absolute_path), _meta_message(e)) for e in map(_cause, errors)}
    found |= {
        (at, f"the pattern {p[:100]!r} is not a valid regular expression")
        for at, p in _bad_patterns(schema)
    }
    return sorted(found)


def first_fault(name: str, schema: Any) -> tuple[str, str] | None:
    """Return the JSON Pointer and message of a schema's first error by its metaschema, or None."""
    try:
        _metaschema(name).validate(schema)
    except jsonschema_rs.ValidationError as error:
        return pointer(error.instance_path), error.message[:200]
    except ValueError as error:
        return "", f"{error}"[:200]
    return None


@functools.cache
def _metaschema(name: str) -> Any:
    return ENGINES[name]({"$ref": _URIS[name]}, offline=True, validate_formats=False)


def _invalid_part(name: str, schema: Any) -> Any:
    """Return a copy of a schema without the valid ones of its named subschemas."""
    part = msgspec.json.decode(msgspec.json.encode(schema))
    for _, node in nodes_of(part):
        for key in [key for key in MAPS if isinstance(node.get(key), dict)]:
            node[key] = {n: v for n, v in node[key].items() if first_fault(name, v)}
    return part


def _faults(name: str, schema: Any) -> list[Any]:
    from mcptally.jsonschemas import reference_engine  # noqa: PLC0415 - 0.1 s, seldom needed

    try:
        return reference_engine.faults(name, schema)
    except RecursionError:
        raise UnusableSchemaError(f"the schema is nested deeper than {MAX_DEPTH}") from None


def _cause(error: Any) -> Any:
    """Return the most deeply nested error of a subschema that no branch of `anyOf` accepts."""
    while error.context and error.path[-1] != "type":
        error = max(error.context, key=lambda e: len(e.absolute_path))
    return error


def _meta_message(error: Any) -> str:
    if error.validator == "type":
        kinds = error.validator_value
        wanted = kinds if isinstance(kinds, str) else " or ".join(kinds)
        return f"is not of type {wanted}"
    if error.validator == "anyOf":
        return "is not a JSON type"
    return str(error.message)[:200]


def _bad_patterns(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield the JSON Pointer and the text of each pattern that is not valid ECMA 262."""
    for at, node in nodes_of(schema):
        texts = [node.get("pattern"), *keys(node.get("patternProperties"))]
        for text in texts:
            if isinstance(text, str) and compile_pattern(text) is None:
                yield at, text


def external_references(schema: Any) -> list[tuple[str, str]]:
    """Return the JSON Pointer and the target of each reference to another document.

    Such references are never followed.
    """
    candidates = [
        (f"{at}/{key}", reference)
        for at, node in nodes_of(schema)
        for key in REFERENCES
        if isinstance(reference := node.get(key), str)
        and not reference.startswith("#")
        and reference.partition("#")[0].split("://")[-1] not in _NAMES
    ]
    if not candidates:
        return []
    references = References(schema)
    return [(at, reference) for at, reference in candidates if references.leads_out(reference)]
