"""Output schemas as the original's validator (AJV 6.12.6, default options) reads them.

That is draft 7 with formats asserted, and a schema it refuses counts as no schema at all:
another `$schema`, a format it does not know, a `$ref` that leads nowhere, anything that the
draft-7 meta-schema rejects. jsonschema-rs judges; this module holds what is AJV's own.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import jsonschema_rs

from mcptally.jsonschemas import cost, dialects, patterns
from mcptally.seeds.inspector import ajv_messages, ajv_patterns, javascript

_DIALECTS: Final = ("", "http://json-schema.org/draft-07/schema", "http://json-schema.org/schema")
"""`$schema` that AJV 6 knows of itself, less a trailing #."""

_BACKTRACKS: Final = 100_000
"""Steps after which a pattern counts as not matching: schemas come from strangers."""

_MANY_WORDS: Final = 16_000
"""Characters kept of what AJV says, which names each branch of an `anyOf`."""

_ASCII: Final = re.ASCII | re.IGNORECASE
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DAY: Final = r"\d{4}-[01]\d-[0-3]\d"
_CLOCK: Final = r"(?:[0-2]\d:[0-5]\d:[0-5]\d|23:59:60)(?:\.\d+)?"
_ZONE: Final = r"(?:z|[+-]\d\d(?::?\d\d)?)"
_BYTE: Final = r"(?:25[0-5]|2[0-4]\d|[01]?\d\d?)"
_POINTER: Final = "(?:/(?:[^~/]|~[01])*)*"
_NO_SPACE: Final = f"[^{javascript.SPACE}"
_SPACE: Final = f"[{javascript.SPACE}"

# What AJV's default ("fast") formats accept; several are looser than their RFCs.
_SHAPES: Final[dict[str, str]] = {
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


def _shape(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, _ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _is_regex(text: str) -> bool:
    return patterns.pattern(ajv_patterns.translate_pattern(text)) is not None


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    name: _shape(pattern) for name, pattern in _SHAPES.items()
} | {"regex": _is_regex}
_BUILT_IN: Final = ("ipv6", "uri-template")
"""Formats that AJV knows too and that jsonschema-rs judges the same on every value tried."""
_KNOWN: Final = frozenset((*_FORMATS, *_BUILT_IN, "url"))


class Refused(Exception):  # noqa: N818 - an answer of the original, not an error of ours
    """AJV would not compile the schema; the message says why."""


class Compiled:
    """A schema that AJV compiles."""

    def __init__(self, schema: Any, limit: int | None = None) -> None:
        self._limit = limit
        schema = _whole_numbers(schema)  # a copy: it is respelt below
        reason = _refusal(schema)
        if reason:
            raise Refused(reason)
        self._schema = _as_compiled(schema)
        self._validator = _draft7(self._schema)

    def first_error(self, value: Any) -> str | None:
        """What is wrong with a value, in AJV's words; None if nothing is.

        Raises:
            Throws: the value is nested so deep that AJV's own recursion has no end.
            RecursionError: it is nested deeper than our engine goes.
        """
        if self._limit is not None and dialects.depth(value) > self._limit:
            raise javascript.Throws("RangeError: Maximum call stack size exceeded")
        value = _whole_numbers(javascript.judgeable(value))
        try:
            if self._validator.is_valid(value):
                return None
        except ValueError as error:
            raise RecursionError(f"{error}") from error
        errors = cost.errors_of(self._validator, self._schema, value)
        if not errors:
            return "data should match the schema"
        return ajv_messages.first(errors, self._schema, value)[:_MANY_WORDS]


def _draft7(schema: Any) -> jsonschema_rs.Draft7Validator:
    try:
        return jsonschema_rs.Draft7Validator(
            schema,
            formats=_FORMATS,
            validate_formats=True,
            keywords={"multipleOf": _MultipleOf},
            pattern_options=patterns.options(schema, backtrack_limit=_BACKTRACKS),
            offline=True,
        )
    except (jsonschema_rs.ValidationError, ValueError, UnicodeError) as error:
        raise Refused(str(error).splitlines()[0]) from error


@functools.cache
def _meta_schema() -> jsonschema_rs.Draft7Validator:
    """Draft 7's meta-schema as AJV ships it: it still wants the values of an enum to differ."""
    from jsonschema import Draft7Validator  # noqa: PLC0415 - a tenth of a second, seldom needed

    meta: dict[str, Any] = json.loads(json.dumps(Draft7Validator.META_SCHEMA))
    meta["properties"]["enum"] |= {"minItems": 1, "uniqueItems": True}
    return _draft7(meta)


def compiled(schema: Any) -> Compiled | None:
    """The schema as AJV has it, or None where it refuses."""
    try:
        text = json.dumps(schema)
        return _with_patterns(text) if patterns.may_hold_patterns(text) else _without(text)
    except (RecursionError, ValueError):
        return None


def compile_status(text: str) -> tuple[bool, bool]:
    """Of a schema's JSON text: whether AJV refuses it; whether it says the same in any dialect.

    In the second case whoever finds a value valid has found it valid for AJV too.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return True, False
    if not javascript.truthy(schema) or compiled(schema) is None:
        return True, True
    plain = all(
        {name for name in part if not name.startswith("x-")}
        <= (_EVERYWHERE if part is not schema else _EVERYWHERE | {"$schema"})
        and not isinstance(part.get("items"), list)
        and ("$ref" not in part or part.keys() <= _BESIDE_REF)
        for part in _reachable(schema)
    )
    return False, plain


_SILENT: Final = frozenset(
    ("title", "description", "default", "examples", "$comment", "deprecated", "readOnly")
)
_BESIDE_REF: Final = _SILENT | {"$ref"}
_EVERYWHERE: Final = _SILENT | {
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "pattern"),
    *("anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "definitions", "propertyNames"),
}
"""Keywords that mean the same to every dialect and to AJV."""


def _compiled(text: str) -> Compiled | None:
    try:
        schema = dialects.read(text)
        # Schemas come from strangers: one whose evaluation may explode is never evaluated.
        limit = cost.deepest_value(schema) if cost.may_explode(text) else None
        return Compiled(schema, limit)
    except (Refused, dialects.UnusableError):
        return None


_without: Final = functools.lru_cache(maxsize=1024)(_compiled)
_with_patterns: Final = functools.lru_cache(maxsize=patterns.FEW)(_compiled)


def _as_compiled(schema: Any) -> Any:
    """The schema for a validator of draft 7, so that it says what AJV says.

    AJV never looks up references that hang unused; and beside a $ref, where draft 7 has nothing
    count, it heeds a `type` that is checked first.
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
        _respell(part)
        if not isinstance(part.get("$ref"), str):
            continue
        if id(part) not in used:
            del part["$ref"]
        elif "type" in part and ajv_messages.type_first(part):
            kept = {name: part[name] for name in ("type", "definitions", "$defs") if name in part}
            ref = part["$ref"]
            part.clear()
            part.update(kept, allOf=[{"$ref": ref}])
    return schema


def _respell(part: dict[str, Any]) -> None:
    if isinstance(part.get("pattern"), str):
        part[ajv_messages.ORIGINAL] = part["pattern"]
        part["pattern"] = ajv_patterns.translate_pattern(part["pattern"])
    if isinstance(part.get("patternProperties"), dict):
        known = part["patternProperties"]
        part["patternProperties"] = {
            ajv_patterns.translate_pattern(name): known[name] for name in known
        }


def _whole_numbers(value: Any) -> Any:
    """A copy in which 1.0 is 1, as it is to JavaScript."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _whole_numbers(item) for name, item in value.items()}
    return value


class _MultipleOf:
    """multipleOf by floating division, as JavaScript does it: 0.29 is no multiple of 0.01."""

    def __init__(self, _schema: dict[str, Any], value: Any, _path: list[str | int]) -> None:
        self.divisor = float(value)

    def validate(self, instance: Any) -> None:
        if isinstance(instance, bool) or not isinstance(instance, int | float):
            return
        quotient = float(instance) / self.divisor
        # parseInt reads the quotient's text up to the first thing that is no digit.
        whole = re.match(r"-?\d+", javascript.number(quotient))
        if whole is None or float(whole.group()) != quotient:
            raise ValueError(javascript.number(self.divisor))


def _refusal(schema: Any) -> str:
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


_ONE: Final = ("additionalProperties", "propertyNames", "contains", "not", "items")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "items")
_MAPS: Final = ("properties", "patternProperties", "dependencies")


def _reachable(schema: Any) -> Iterator[dict[str, Any]]:
    """The parts of a schema that AJV turns into code; what hangs unused in definitions is not."""
    seen: set[int] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part.get("$ref"), str):
            # A $ref silences its neighbours.
            stack.append(ajv_messages.pointed(schema, part["$ref"]))
            continue
        stack += [part[name] for name in _ONE if name in part]
        for name in _LISTS:
            listed = part[name] if isinstance(part.get(name), list) else []
            # One branch that takes anything, and the whole anyOf is dropped.
            if name != "anyOf" or all(map(ajv_messages.has_rules, listed)):
                stack += listed
        for name in _MAPS:
            stack += part[name].values() if isinstance(part.get(name), dict) else []
        if isinstance(part.get("items"), list):
            stack.append(part.get("additionalItems"))
        if "if" in part and ("then" in part or "else" in part):
            stack += [part["if"], part.get("then"), part.get("else")]
