"""What AJV 6 says about a value that its schema refuses: one error, in its own words.

AJV stops at the first error, and it looks in an order of its own: by keyword, not by the
position of anything in the schema. Errors of anyOf and oneOf come with those of every branch.
"""

import itertools
import re
from collections.abc import Iterable
from typing import Any, Final

import jsonschema_rs

from mcptally.seed import javascript

_ORDER: Final = (
    *("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "multipleOf"),
    *("maxLength", "minLength", "pattern", "format"),
    *("maxItems", "minItems", "additionalItems", "items", "contains", "uniqueItems"),
    *("maxProperties", "minProperties", "required", "propertyNames"),
    *("additionalProperties", "properties", "patternProperties"),
    *("type", "$ref", "const", "dependencies", "enum", "not", "anyOf", "oneOf", "allOf"),
    *("if", "then", "else"),
)
_RANK: Final = {keyword: rank for rank, keyword in enumerate(_ORDER)}
_IDENTIFIER: Final = re.compile("[A-Za-z$_][0-9A-Za-z$_]*")


def first(errors: Iterable[jsonschema_rs.ValidationError], schema: Any) -> str:
    """The errors' text as AJV would give it."""
    return ", ".join(_first(errors, schema))


def _first(errors: Iterable[jsonschema_rs.ValidationError], schema: Any) -> list[str]:
    return _sentences(min(errors, key=lambda error: _key(error, schema)), schema)


def _key(error: jsonschema_rs.ValidationError, schema: Any) -> tuple[tuple[int, int], ...]:
    """Sorts errors in the order in which AJV meets them."""
    key: list[tuple[int, int]] = []
    path = list(error.evaluation_path)
    part, place = schema, 0
    while place < len(path):
        keyword = str(path[place])
        rank = _RANK.get(keyword, len(_RANK))
        position = 0
        if keyword in ("properties", "patternProperties") and place + 1 < len(path):
            position = _position(part, keyword, str(path[place + 1]))
        elif keyword == "required" and error.kind.name == "required":
            name = error.kind.as_dict()["property"]
            declared = part.get("properties") if isinstance(part, dict) else None
            if isinstance(declared, dict) and declared.get(name) not in (None, {}, True):
                # AJV looks for it when it comes to the property, not with the other required ones.
                rank, position = _RANK["properties"], list(declared).index(name)
            elif isinstance(part, dict):
                position = list(part.get("required", [])).index(name)
        elif keyword == "items":
            steps = [step for step in error.instance_path if isinstance(step, int)]
            position = steps[0] if steps else 0
        key.append((rank, position))
        part = _inside(schema, part, path[place])
        if keyword in ("properties", "patternProperties", "dependencies") and place + 1 < len(path):
            place += 1
            part = _inside(schema, part, path[place])
        place += 1
    return tuple(key)


def _position(part: Any, keyword: str, name: str) -> int:
    names = part.get(keyword) if isinstance(part, dict) else None
    return list(names).index(name) if isinstance(names, dict) and name in names else 0


def pointed(schema: Any, ref: str) -> Any:
    """What a reference within the schema points at; None for any other."""
    if not ref.startswith("#"):
        return None
    part = schema
    for token in ref[1:].split("/")[1:]:
        part = _inside(schema, part, token.replace("~1", "/").replace("~0", "~"))
    return part


def _inside(schema: Any, part: Any, step: str | int) -> Any:
    if isinstance(part, dict):
        found = part.get(str(step))
        return pointed(schema, found) if step == "$ref" and isinstance(found, str) else found
    if isinstance(part, list) and str(step).isdigit() and int(step) < len(part):
        return part[int(step)]
    return None


def _part(schema: Any, path: Iterable[str | int]) -> Any:
    part = schema
    for step in path:
        part = _inside(schema, part, step)
    return part


def _sentences(error: jsonschema_rs.ValidationError, schema: Any) -> list[str]:
    where = _where(error)
    kind = error.kind.name
    found = error.kind.as_dict()
    if kind in ("anyOf", "oneOf"):
        branches = [branch for branch in found.get("context", []) if branch]
        said = [] if _is_many(error) else [s for b in branches for s in _first(b, schema)]
        match = "some schema in anyOf" if kind == "anyOf" else "exactly one schema in oneOf"
        return [*said, f"{where} should match {match}"]
    if kind == "propertyNames":
        inner = found["error"]
        name = inner.instance
        return [*_sentences(inner, schema), f"{where} property name '{name}' is invalid"]
    if kind == "required":
        return [f"{where} should have required property {_required(error, schema)}"]
    keyword = str(error.schema_path[-1]) if error.schema_path else kind
    if keyword in _SAYS:
        return [f"{where} {_SAYS[keyword]}"]
    if kind == "uniqueItems":
        later, earlier = _twins(error.instance)
        same = f"(items ## {earlier} and {later} are identical)"
        return [f"{where} should NOT have duplicate items {same}"]
    if kind == "type":
        types = _part(schema, error.evaluation_path)
        named = ",".join(types) if isinstance(types, list) else types
        return [f"{where} should be {named}"]
    if kind == "additionalItems":
        return [f"{where} should NOT have more than {found['limit']} items"]
    if kind == "format":
        return [f'{where} should match format "{found["format"]}"']
    if kind == "pattern":
        return [f'{where} should match pattern "{found["pattern"]}"']
    if kind == "falseSchema":
        return [f"{where} boolean schema is false"]
    if kind == "multipleOf" or keyword == "multipleOf":
        return [f"{where} should be multiple of {error.kind.as_dict().get('message', '')}"]
    if kind in _LIMITS:
        return [f"{where} {_LIMITS[kind].format(javascript.number(found['limit']))}"]
    return [f'{where} should pass "{keyword}" keyword validation']


def _is_many(error: jsonschema_rs.ValidationError) -> bool:
    return type(error.kind).__name__ == "OneOfMultipleValid"


def _required(error: jsonschema_rs.ValidationError, schema: Any) -> str:
    """The missing name: bare where the property is declared, as an accessor where it is not."""
    name = str(error.kind.as_dict()["property"])
    part = _part(schema, list(error.evaluation_path)[:-1])
    declared = part.get("properties") if isinstance(part, dict) else None
    if isinstance(declared, dict) and declared.get(name) not in (None, {}, True):
        return f"'{name}'"
    return f"'.{name}'" if _IDENTIFIER.fullmatch(name) else f"'['{name}']'"


def _where(error: jsonschema_rs.ValidationError) -> str:
    """AJV's path to the value: a name from `properties` is dotted, any other is in brackets."""
    declared = {
        str(name)
        for keyword, name in itertools.pairwise(error.evaluation_path)
        if keyword == "properties"
    }
    # AJV spells a step like this: [0], .name, or ['name'].
    steps = (
        f"[{step}]"
        if isinstance(step, int)
        else f".{step}"
        if step in declared and _IDENTIFIER.fullmatch(step)
        else f"['{step}']"
        for step in error.instance_path
    )
    return "data" + "".join(steps)


def _twins(items: Any) -> tuple[int, int]:
    """The pair of equal items that AJV names: it walks from the end."""
    texts = [javascript.stringify(item) for item in items]
    for later in range(len(texts) - 1, 0, -1):
        for earlier in range(later - 1, -1, -1):
            if texts[earlier] == texts[later]:
                return later, earlier
    return 1, 0


_SAYS: Final[dict[str, str]] = {
    "additionalProperties": "should NOT have additional properties",
    "const": "should be equal to constant",
    "enum": "should be equal to one of the allowed values",
    "not": "should NOT be valid",
    "contains": "should contain a valid item",
}
_LIMITS: Final[dict[str, str]] = {
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
