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

from mcptally.seed import ajv_words, javascript

_DIALECTS: Final = ("", "http://json-schema.org/draft-07/schema", "http://json-schema.org/schema")
"""`$schema` that AJV 6 knows of itself, less a trailing #."""

_BACKTRACKS: Final = 100_000
"""Steps after which a pattern counts as not matching: schemas come from strangers."""

_ASCII: Final = re.ASCII | re.IGNORECASE
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DAY: Final = r"\d{4}-[01]\d-[0-3]\d"
_CLOCK: Final = r"(?:[0-2]\d:[0-5]\d:[0-5]\d|23:59:60)(?:\.\d+)?"
_ZONE: Final = r"(?:z|[+-]\d\d(?::?\d\d)?)"
_BYTE: Final = r"(?:25[0-5]|2[0-4]\d|[01]?\d\d?)"
_POINTER: Final = "(?:/(?:[^~/]|~[01])*)*"
_NO_SPACE: Final = "[^\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACE: Final = "[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

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


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    name: _shape(pattern) for name, pattern in _SHAPES.items()
}
_BUILT_IN: Final = ("ipv6", "regex", "uri-template")
"""Formats that AJV knows too and that jsonschema-rs judges the same on every value tried."""
_KNOWN: Final = frozenset((*_FORMATS, *_BUILT_IN, "url"))


class Refused(Exception):  # noqa: N818 - an answer of the original, not an error of ours
    """AJV would not compile the schema; the message says why."""


class Compiled:
    """A schema that AJV compiles."""

    def __init__(self, schema: Any) -> None:
        reason = _refusal(schema)
        if reason:
            raise Refused(reason)
        self._schema = schema
        try:
            self._validator = jsonschema_rs.Draft7Validator(
                schema,
                formats=_FORMATS,
                validate_formats=True,
                keywords={"multipleOf": _MultipleOf},
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
                offline=True,
            )
        except (jsonschema_rs.ValidationError, ValueError, UnicodeError) as error:
            raise Refused(str(error).splitlines()[0]) from error

    def first_error(self, value: Any) -> str | None:
        """What is wrong with a value, in AJV's words; None if nothing is."""
        value = javascript.judgeable(value)
        if self._validator.is_valid(value):
            return None
        return ajv_words.first(self._validator.iter_errors(value), self._schema)


def compiled(schema: Any) -> Compiled | None:
    """The schema as AJV has it, or None where it refuses."""
    try:
        return _compiled(json.dumps(schema))
    except (RecursionError, ValueError):
        return None


def standing(text: str) -> tuple[bool, bool]:
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


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> Compiled | None:
    try:
        return Compiled(json.loads(text))
    except Refused:
        return None


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
            stack.append(ajv_words.pointed(schema, part["$ref"]))
            continue
        stack += [part[name] for name in _ONE if name in part]
        stack += [
            each for name in _LISTS if isinstance(part.get(name), list) for each in part[name]
        ]
        stack += [
            each
            for name in _MAPS
            if isinstance(part.get(name), dict)
            for each in part[name].values()
        ]
        if isinstance(part.get("items"), list):
            stack.append(part.get("additionalItems"))
        if "if" in part and ("then" in part or "else" in part):
            stack += [part["if"], part.get("then"), part.get("else")]
