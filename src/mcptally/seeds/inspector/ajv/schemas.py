"""Validates output schemas in the same way as AJV 6.12.6 with default options.

AJV asserts formats and follows draft 7. If AJV rejects an output schema, the tool is treated as if
it had none. AJV rejects a `$schema` other than draft 7, an unknown format, a `$ref` that cannot be
resolved, and any schema that the draft-7 meta-schema rejects. Values are validated by
jsonschema-rs; this module adds the differences of AJV.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from mcptally.jsonschemas import cost, dialects, patterns
from mcptally.seeds import javascript
from mcptally.seeds.inspector.ajv import messages
from mcptally.seeds.inspector.ajv import patterns as ajv_patterns

_DIALECTS: Final = ("", "http://json-schema.org/draft-07/schema", "http://json-schema.org/schema")
"""Values of `$schema` that AJV 6 accepts, without a trailing #."""

_BACKTRACKS: Final = 100_000
"""Maximum number of steps in matching a pattern, after which the pattern counts as not matching."""

_MAX_MESSAGE: Final = 16_000
"""Maximum number of characters kept of a message; AJV lists every branch of an `anyOf`."""

_ASCII: Final = re.ASCII | re.IGNORECASE
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DAY: Final = r"\d{4}-[01]\d-[0-3]\d"
_CLOCK: Final = r"(?:[0-2]\d:[0-5]\d:[0-5]\d|23:59:60)(?:\.\d+)?"
_ZONE: Final = r"(?:z|[+-]\d\d(?::?\d\d)?)"
_BYTE: Final = r"(?:25[0-5]|2[0-4]\d|[01]?\d\d?)"
_POINTER: Final = "(?:/(?:[^~/]|~[01])*)*"
_NO_SPACE: Final = f"[^{javascript.SPACE}"
_SPACE: Final = f"[{javascript.SPACE}"

# AJV's default ("fast") formats; several accept more than their RFCs.
_FORMAT_PATTERNS: Final[dict[str, str]] = {
    "date": _DAY,
    "time": f"{_CLOCK}{_ZONE}?",
    "date-time": f"{_DAY}(?:t|{_SPACE}]){_CLOCK}{_ZONE}",
    "uri": f"[a-z][a-z0-9+.-]*:(?:/?/)?{_NO_SPACE}]*",
    "uri-reference": (
        rf"(?:(?:[a-z][a-z0-9+.-]*:)?/?/)?(?:{_NO_SPACE}\\#]{_NO_SPACE}#]*)?(?:#{_NO_SPACE}\\]*)?"
    ),
    "email": rf"[a-z0-9.!#$%&'*+/=?^_`{{|}}~-]+@{_LABEL}(?:\.{_LABEL})*",
    "hostname": rf"(?=.{{1,253}}\.?\Z){_LABEL}(?:\.{_LABEL})*\.?",
    "ipv4": rf"(?:{_BYTE}\.){{3}}{_BYTE}",
    "uuid": "(?:urn:uuid:)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
    "json-pointer": _POINTER,
    "json-pointer-uri-fragment": ("#(?:/(?:[a-z0-9_.!$&'()*+,;:=@-]|%[0-9a-f]{2}|~[01])*)*"),
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
}


def _full_match(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests for a full match of a pattern, which `re` compiles once."""
    return lambda text: re.fullmatch(pattern, text, _ASCII) is not None


def _is_regex(text: str) -> bool:
    return patterns.compile_pattern(ajv_patterns.translate_pattern(text)) is not None


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    name: _full_match(pattern) for name, pattern in _FORMAT_PATTERNS.items()
} | {"regex": _is_regex}
_BUILT_IN: Final = ("ipv6", "uri-template")
"""Formats for which jsonschema-rs agreed with AJV about every tested value."""
_KNOWN: Final = frozenset((*_FORMATS, *_BUILT_IN, "url"))


class Refused(Exception):  # noqa: N818 - an expected result of the original program
    """Raised if AJV refuses to compile a schema; the message gives the reason."""


class Compiled:
    """A schema that AJV accepts, with a validator that gives AJV's messages."""

    def __init__(self, schema: Any, limit: int | None = None) -> None:
        self._limit = limit
        schema = _with_integers(schema)  # copy the schema, because it is modified below
        reason = _refusal(schema)
        if reason:
            raise Refused(reason)
        self._schema = _adapt_to_draft7(schema)
        self._validator = _draft7(self._schema)
        self._cost = cost.ErrorCost(self._schema)

    def first_error(self, value: Any) -> str | None:
        """Return AJV's message about a value, or None if the value is valid.

        Raises:
            Throws: the value is nested so deeply that AJV's recursion overflows the stack.
            RecursionError: the value is nested deeper than jsonschema-rs accepts.
        """
        if self._limit is not None and dialects.nesting_depth(value) > self._limit:
            raise javascript.Throws("RangeError: Maximum call stack size exceeded")
        value = _with_integers(javascript.judgeable(value))
        try:
            if self._validator.is_valid(value):
                return None
        except ValueError as error:
            raise RecursionError(f"{error}") from error
        errors = cost.collect_errors(self._validator, self._cost, value)
        if not errors:
            return "data should match the schema"
        return messages.first(errors, self._schema, value)[:_MAX_MESSAGE]


def _draft7(schema: Any) -> jsonschema_rs.Draft7Validator:
    try:
        return jsonschema_rs.Draft7Validator(
            schema,
            formats=_FORMATS,
            validate_formats=True,
            keywords={"multipleOf": _MultipleOf},
            pattern_options=patterns.pattern_options(schema, backtrack_limit=_BACKTRACKS),
            offline=True,
        )
    except (jsonschema_rs.ValidationError, ValueError, UnicodeError) as error:
        raise Refused(str(error).splitlines()[0]) from error


@functools.cache
def _meta_schema() -> jsonschema_rs.Draft7Validator:
    """Return a validator for AJV's draft-7 meta-schema, which requires distinct enum values."""
    # Read our own file: jsonschema has the standard meta-schema, but takes 0.05 s to import.
    text = Path(__file__).with_name("metaschema.json").read_text(encoding="utf-8")
    return _draft7(json.loads(text))


def compiled(schema: Any) -> Compiled | None:
    """Compile a schema as AJV does; return None if AJV rejects the schema."""
    try:
        text = json.dumps(schema)
        if patterns.may_have_patterns(text):
            return _compiled_with_patterns(text)
        return _compiled_without_patterns(text)
    except (RecursionError, ValueError):
        return None


def compile_status(text: str) -> tuple[bool, bool]:
    """Return whether AJV rejects a schema (JSON text), and whether its dialect makes no difference.

    If it makes no difference, a value that is valid in the schema's own dialect is also valid for
    AJV.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return True, False
    if not javascript.truthy(schema) or compiled(schema) is None:
        return True, True
    is_portable = all(
        {name for name in part if not name.startswith("x-")}
        <= (_PORTABLE if part is not schema else _PORTABLE | {"$schema"})
        and not isinstance(part.get("items"), list)
        and ("$ref" not in part or part.keys() <= _BESIDE_REF)
        for part in _reachable(schema)
    )
    return False, is_portable


_ANNOTATIONS: Final = frozenset(
    ("title", "description", "default", "examples", "$comment", "deprecated", "readOnly")
)
_BESIDE_REF: Final = _ANNOTATIONS | {"$ref"}
_PORTABLE: Final = _ANNOTATIONS | {
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "pattern"),
    *("anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "definitions", "propertyNames"),
}
"""Keywords that mean the same in every dialect and for AJV."""


def _compiled(text: str) -> Compiled | None:
    try:
        schema = dialects.parse_schema(text)
        # Limit the depth of values for which validation against an untrusted schema could take
        # exponential time.
        limit = cost.max_value_depth(schema) if cost.may_be_costly(text) else None
        return Compiled(schema, limit)
    except (Refused, dialects.UnusableSchemaError):
        return None


_compiled_without_patterns: Final = functools.lru_cache(maxsize=1024)(_compiled)
_compiled_with_patterns: Final = functools.lru_cache(maxsize=patterns.MAX_CACHED_SCHEMAS)(_compiled)


def _adapt_to_draft7(schema: Any) -> Any:
    """Modify a schema in place, so that a draft-7 validator agrees with AJV, and return it.

    AJV does not resolve references in unused definitions. Draft 7 ignores every keyword next to a
    `$ref`, but AJV checks a `type` next to a `$ref` if `type` is the first keyword that it checks
    in this schema (`messages.type_first`).
    """
    used = {id(part) for part in _reachable(schema)}
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            stack += part
        if not isinstance(part, dict):
            continue
        stack += part.values()
        _translate_patterns(part)
        if not isinstance(part.get("$ref"), str):
            continue
        if id(part) not in used:
            del part["$ref"]
        elif "type" in part and messages.type_first(part):
            kept = {name: part[name] for name in ("type", "definitions", "$defs") if name in part}
            ref = part["$ref"]
            part.clear()
            part.update(kept, allOf=[{"$ref": ref}])
    return schema


def _translate_patterns(part: dict[str, Any]) -> None:
    if isinstance(part.get("pattern"), str):
        part[messages.ORIGINAL] = part["pattern"]
        part["pattern"] = ajv_patterns.translate_pattern(part["pattern"])
    if isinstance(part.get("patternProperties"), dict):
        known = part["patternProperties"]
        part["patternProperties"] = {
            ajv_patterns.translate_pattern(name): known[name] for name in known
        }


def _with_integers(value: Any) -> Any:
    """Return a copy in which 1 replaces 1.0, because JavaScript does not distinguish the two."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in value.items()}
    return value


class _MultipleOf:
    """Checks `multipleOf` by floating-point division, as AJV does: 0.29 is no multiple of 0.01."""

    def __init__(self, _schema: dict[str, Any], value: Any, _path: list[str | int]) -> None:
        self.divisor = float(value)

    def validate(self, instance: Any) -> None:
        if isinstance(instance, bool) or not isinstance(instance, int | float):
            return
        quotient = float(instance) / self.divisor
        # AJV applies parseInt, which stops at the first character other than a digit.
        whole = re.match(r"-?\d+", javascript.number(quotient))
        if whole is None or float(whole.group()) != quotient:
            raise ValueError(javascript.number(self.divisor))


def _refusal(schema: Any) -> str:
    """Return why AJV rejects a schema, or an empty string if AJV accepts it."""
    if not isinstance(schema, dict | bool):
        return "schema should be object or boolean"
    meta = _meta_schema()
    if not meta.is_valid(schema):
        return next(iter(meta.iter_errors(schema))).message
    for part in _reachable(schema):
        dialect = part.get("$schema", "") if part is schema else ""
        if isinstance(dialect, str) and dialect.rstrip("#") not in _DIALECTS:
            return f'no schema with key or ref "{dialect}"'
        name = part.get("format")
        if "$ref" not in part and isinstance(name, str) and name not in _KNOWN:
            return f'unknown format "{name}"'
    return ""


_SINGLE: Final = ("additionalProperties", "propertyNames", "contains", "not", "items")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "items")
_MAPS: Final = ("properties", "patternProperties", "dependencies")


def _reachable(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the subschemas that AJV compiles: all except those in unused definitions."""
    seen: set[int] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part.get("$ref"), str):
            # A $ref disables the keywords next to it.
            stack.append(messages.resolved(schema, part["$ref"]))
            continue
        stack += [part[name] for name in _SINGLE if name in part]
        for name in _LISTS:
            listed = part[name] if isinstance(part.get(name), list) else []
            # AJV ignores an anyOf with a branch that accepts everything.
            if name != "anyOf" or all(map(messages.has_rules, listed)):
                stack += listed
        for name in _MAPS:
            stack += part[name].values() if isinstance(part.get(name), dict) else []
        if isinstance(part.get("items"), list):
            stack.append(part.get("additionalItems"))
        if "if" in part and ("then" in part or "else" in part):
            stack += [part["if"], part.get("then"), part.get("else")]
