"""JSON Schema as jsonschema reads it, for what the fast engine refuses or finds wrong.

Loading it takes a tenth of a second, and most archives never ask: import this where it is needed.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import jsonschema
from jsonschema.exceptions import UnknownType
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable

from mcptally.jsonschemas.patterns import pattern
from mcptally.jsonschemas.subschemas import each_subschema

CLASSES: Final[Mapping[str, Any]] = {
    "2020-12": jsonschema.Draft202012Validator,
    "2019-09": jsonschema.Draft201909Validator,
    "draft-07": jsonschema.Draft7Validator,
    "draft-06": jsonschema.Draft6Validator,
    "draft-04": jsonschema.Draft4Validator,
}
"""Dialect → its validator."""

UNDECIDED: Final = (RecursionError, Unresolvable, UnknownType)
"""What judging raises where a schema cannot be followed."""


def faults(name: str, schema: Any) -> list[Any]:
    """The errors (`jsonschema.ValidationError`) of a schema against the metaschema of a dialect.

    Raises:
        RecursionError: the schema is nested too deep.
    """
    return list(_meta_validator(name).iter_errors(schema))


def judge_by(name: str, schema: Any) -> Callable[[Any], list[Any]] | None:
    """What finds the errors of values; None: no schema, or one for which Python's `re` would run.

    The judge raises what `UNDECIDED` names.
    """
    cls = CLASSES[name]
    try:
        cls.check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))
    except (jsonschema.SchemaError, RecursionError, Unresolvable):
        return None
    if "patternProperties" in str(schema):
        return None
    validator = jsonschema.validators.extend(cls, {"pattern": _pattern})(
        schema, registry=Registry()
    )
    return lambda value: list(validator.iter_errors(value))


def _pattern(_: Any, text: Any, value: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """`pattern` of jsonschema, judged by the fast engine: Python's `re` may never end."""
    if isinstance(value, str) and isinstance(text, str):
        matcher = pattern(text)
        if matcher is not None and not matcher.is_valid(value):
            yield jsonschema.ValidationError("does not match", validator="pattern")


@functools.cache
def _meta_validator(name: str) -> Validator:
    cls = CLASSES[name]
    metaschema = compact(cls.META_SCHEMA) if "allOf" in cls.META_SCHEMA else cls.META_SCHEMA
    return cls(metaschema, registry=Registry())


def compact(metaschema: Any) -> dict[str, Any]:
    """A metaschema as one document without dynamic references: jsonschema is 9 times faster so."""
    vocabularies = [
        REGISTRY.contents(metaschema["$id"].rsplit("/", 1)[0] + "/" + part["$ref"])
        for part in metaschema.get("allOf", ())
    ]
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for part in (metaschema, *vocabularies):
        definitions |= part.get("$defs", {})
        properties |= part.get("properties", {})
    whole = {"type": ["object", "boolean"], "properties": properties, "$defs": definitions}
    flat: dict[str, Any] = each_subschema(whole, _without_dynamics)
    return flat


def _without_dynamics(node: dict[str, Any]) -> dict[str, Any]:
    if "$dynamicRef" in node or "$recursiveRef" in node:
        return {"$ref": "#"}
    plain = {k: v for k, v in node.items() if k not in {"$dynamicAnchor", "$recursiveAnchor"}}
    if "#" in plain.get("$ref", ""):  # from one vocabulary into another: here they are one
        plain["$ref"] = "#" + plain["$ref"].split("#")[1]
    return plain
