"""Produces AJV 6's message for the first error in a value that does not match its schema.

AJV stops at the first error, and checks keywords in a fixed order, regardless of their order in the
schema. A message about anyOf or oneOf includes the errors of every branch.
"""

import itertools
import re
from collections.abc import Iterable
from typing import Any, Final

import jsonschema_rs

from mcptally.seeds import javascript

_GROUPS: Final = {
    "number": (
        *("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "multipleOf"),
        "format",
    ),
    "string": ("maxLength", "minLength", "pattern", "format"),
    "array": ("maxItems", "minItems", "additionalItems", "items", "contains", "uniqueItems"),
    "object": (
        *("maxProperties", "minProperties", "required", "dependencies", "propertyNames"),
        *("additionalProperties", "properties", "patternProperties"),
    ),
    "": (*("$ref", "const", "enum", "not", "anyOf", "oneOf", "allOf"), *("if", "then", "else")),
}
"""Maps types of values to the keywords that apply to them, in AJV's order."""

_RANK: Final = {
    keyword: rank
    for rank, (kind, keyword) in enumerate(
        (kind, keyword) for kind, group in _GROUPS.items() for keyword in group
    )
    # All of AJV's formats apply only to strings.
    if (kind, keyword) != ("number", "format")
}
ORIGINAL: Final = "x-original-pattern"
"""Name of the member in which a schema keeps the original pattern before translation."""

_INWARD: Final = (
    *("properties", "patternProperties", "additionalProperties"),
    *("items", "additionalItems"),
)
"""Keywords whose subschemas apply to members or items of a value."""

_IDENTIFIER: Final = re.compile("[A-Za-z$_][0-9A-Za-z$_]*")


def first(errors: Iterable[jsonschema_rs.ValidationError], schema: Any, value: Any) -> str:
    """Return the message that AJV gives where jsonschema-rs found these errors."""
    return ", ".join(_first_sentences(errors, schema, value))


def _first_sentences(
    errors: Iterable[jsonschema_rs.ValidationError], schema: Any, value: Any
) -> list[str]:
    return _sentences(min(errors, key=lambda error: _key(error, schema, value)), schema, value)


def _key(
    error: jsonschema_rs.ValidationError, schema: Any, value: Any
) -> tuple[tuple[int, int], ...]:
    """Return a key that sorts errors in the order in which AJV checks keywords."""
    key: list[tuple[int, int]] = []
    path = list(error.evaluation_path)
    steps = list(error.instance_path)
    part, place = schema, 0
    while place < len(path):
        keyword = str(path[place])
        rank = _rank(part, keyword)
        position = 0
        if keyword in ("properties", "patternProperties") and place + 1 < len(path):
            position = _position(part, keyword, str(path[place + 1]))
        elif keyword == "required" and place + 1 == len(path):
            name = error.kind.as_dict()["property"]
            declared = part.get("properties") if isinstance(part, dict) else None
            if isinstance(declared, dict) and _is_compiled(declared.get(name)):
                # AJV reports a missing declared property under `properties`, at the property's
                # position, not under `required`.
                rank, position = _RANK["properties"], list(declared).index(name)
            elif isinstance(part, dict):
                names = part.get("required", [])
                position = names.index(name) if name in names else 0
        elif keyword == "propertyNames" and error.kind.name == "propertyNames":
            position = _item_number(value, error.kind.as_dict()["error"].instance)
        if keyword in _INWARD and steps:
            step = steps.pop(0)
            if keyword == "additionalProperties" or isinstance(step, int):
                position = _item_number(value, step)
            value = _item(value, step)
        key.append((rank, position))
        part = _inside(schema, part, path[place])
        if keyword in ("properties", "patternProperties", "dependencies") and place + 1 < len(path):
            place += 1
            part = _inside(schema, part, path[place])
        place += 1
    return tuple(key)


def _item_number(value: Any, step: Any) -> int:
    """Return the position of a member or item within the value that contains it."""
    if isinstance(step, int):
        return step
    return list(value).index(step) if isinstance(value, dict) and step in value else 0


def _item(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(step))
    is_place = isinstance(value, list) and isinstance(step, int) and step < len(value)
    return value[step] if is_place and isinstance(step, int) else None


def type_first(part: dict[str, Any]) -> bool:
    """Return whether AJV checks `type` before all other keywords, even next to a $ref."""
    kind = part.get("type")
    # If the schema has keywords for this type, AJV checks the type immediately before the first of
    # them.
    return not isinstance(kind, str) or part.keys().isdisjoint(_GROUPS.get(kind, ()))


def has_rules(schema: Any) -> bool:
    """Return whether a schema has a keyword that AJV compiles to a check."""
    if isinstance(schema, dict):
        return "type" in schema or not _RANK.keys().isdisjoint(schema)
    return schema is False


def _is_compiled(schema: Any) -> bool:
    return isinstance(schema, dict) and has_rules(schema)


def _rank(part: Any, keyword: str) -> int:
    if keyword != "type" or not isinstance(part, dict):
        return _RANK.get(keyword, len(_RANK))
    if type_first(part):
        return -1
    return min(_RANK[each] for each in _GROUPS[part["type"]] if each in part)


def _position(part: Any, keyword: str, name: str) -> int:
    names = part.get(keyword) if isinstance(part, dict) else None
    return list(names).index(name) if isinstance(names, dict) and name in names else 0


def resolved(schema: Any, ref: str) -> Any:
    """Return the target of a reference within the schema; None if it refers to another document."""
    if not ref.startswith("#"):
        return None
    part = schema
    for token in ref[1:].split("/")[1:]:
        part = _inside(schema, part, token.replace("~1", "/").replace("~0", "~"))
    return part


def _inside(schema: Any, part: Any, step: str | int) -> Any:
    if isinstance(part, dict):
        found = part.get(str(step))
        return resolved(schema, found) if step == "$ref" and isinstance(found, str) else found
    if isinstance(part, list) and str(step).isdigit() and int(step) < len(part):
        return part[int(step)]
    return None


def _part(schema: Any, path: Iterable[str | int]) -> Any:
    part = schema
    for step in path:
        part = _inside(schema, part, step)
    return part


def _sentences(error: jsonschema_rs.ValidationError, schema: Any, value: Any) -> list[str]:
    where = _where(error)
    kind = error.kind.name
    found = error.kind.as_dict()
    if kind in ("anyOf", "oneOf"):
        branches = [branch for branch in found.get("context", []) if branch]
        sentences = [
            sentence
            for branch in branches
            if not _matches_many(error)
            for sentence in _first_sentences(branch, schema, value)
        ]
        match = "some schema in anyOf" if kind == "anyOf" else "exactly one schema in oneOf"
        return [*sentences, f"{where} should match {match}"]
    if kind == "propertyNames":
        inner = found["error"]
        name = inner.instance
        return [*_sentences(inner, schema, value), f"{where} property name '{name}' is invalid"]
    if kind == "required" and error.evaluation_path[-1] == "dependencies":
        return [f"{where} {_dependency(error, schema, value)}"]
    if kind == "required":
        return [f"{where} should have required property {_required(error, schema)}"]
    keyword = str(error.schema_path[-1]) if error.schema_path else kind
    if keyword in _FIXED_MESSAGES:
        return [f"{where} {_FIXED_MESSAGES[keyword]}"]
    if kind == "uniqueItems":
        later, earlier = _duplicates(error.instance)
        detail = f"(items ## {earlier} and {later} are identical)"
        return [f"{where} should NOT have duplicate items {detail}"]
    if kind == "type":
        types = _part(schema, error.evaluation_path)
        named = ",".join(types) if isinstance(types, list) else types
        return [f"{where} should be {named}"]
    if kind == "additionalItems":
        return [f"{where} should NOT have more than {found['limit']} items"]
    if kind == "format":
        return [f'{where} should match format "{found["format"]}"']
    if kind == "pattern":
        part = _part(schema, list(error.evaluation_path)[:-1])
        # The error has no pattern if the match was abandoned because of its cost.
        text = (part or found).get(ORIGINAL, found.get("pattern", ""))
        return [f'{where} should match pattern "{text}"']
    if kind == "falseSchema":
        return [f"{where} boolean schema is false"]
    if kind == "multipleOf" or keyword == "multipleOf":
        return [f"{where} should be multiple of {error.kind.as_dict().get('message', '')}"]
    if kind in _LIMIT_MESSAGES:
        return [f"{where} {_LIMIT_MESSAGES[kind].format(javascript.number(found['limit']))}"]
    return [f'{where} should pass "{keyword}" keyword validation']


def _matches_many(error: jsonschema_rs.ValidationError) -> bool:
    return type(error.kind).__name__ == "OneOfMultipleValid"


def _required(error: jsonschema_rs.ValidationError, schema: Any) -> str:
    """Return AJV's name for a missing property: its plain name if declared, else an accessor."""
    name = str(error.kind.as_dict()["property"])
    part = _part(schema, list(error.evaluation_path)[:-1])
    declared = part.get("properties") if isinstance(part, dict) else None
    if isinstance(declared, dict) and _is_compiled(declared.get(name)):
        return f"'{name}'"
    return f"'.{name}'" if _IDENTIFIER.fullmatch(name) else f"'['{name}']'"


def _dependency(error: jsonschema_rs.ValidationError, schema: Any, value: Any) -> str:
    for step in error.instance_path:
        value = _item(value, step)
    needs = _part(schema, error.evaluation_path)
    for name, needed in needs.items() if isinstance(needs, dict) else ():
        if isinstance(value, dict) and name in value and isinstance(needed, list):
            if all(each in value for each in needed):
                continue
            what = "property" if len(needed) == 1 else "properties"
            return f"should have {what} {', '.join(needed)} when property {name} is present"
    return "should have property"


def _where(error: jsonschema_rs.ValidationError) -> str:
    """Return AJV's path to the value in which an error was found.

    Declared properties follow dots; other properties are in brackets.
    """
    declared = {
        str(name)
        for keyword, name in itertools.pairwise(error.evaluation_path)
        if keyword == "properties"
    }
    # The three notations are [0], .name and ['name'].
    steps = (
        f"[{step}]"
        if isinstance(step, int)
        else f".{step}"
        if step in declared and _IDENTIFIER.fullmatch(step)
        else f"['{step}']"
        for step in error.instance_path
    )
    return "data" + "".join(steps)


def _duplicates(items: Any) -> tuple[int, int]:
    """Return the positions of the two equal items that AJV reports.

    AJV searches from the end.
    """
    found = 1, 0
    latest: dict[str, int] = {}
    for position, text in enumerate(map(javascript.stringify, items)):
        if text in latest:
            found = position, latest[text]
        latest[text] = position
    return found


_FIXED_MESSAGES: Final[dict[str, str]] = {
    "additionalProperties": "should NOT have additional properties",
    "const": "should be equal to constant",
    "enum": "should be equal to one of the allowed values",
    "not": "should NOT be valid",
    "contains": "should contain a valid item",
}
_LIMIT_MESSAGES: Final[dict[str, str]] = {
    "maximum": "should be <= {}",
    "minimum": "should be >= {}",
    "exclusiveMaximum": "should be < {}",
    "exclusiveMinimum": "should be > {}",
    "maxLength": "should NOT be longer than {} characters",
    "minLength": "should NOT be shorter than {} characters",
    "maxItems": "should NOT have more than {} items",
    "minItems": "should NOT have fewer than {} items",
    "maxProperties": "should NOT have more than {} properties",
    "minProperties": "should NOT have fewer than {} properties",
}
