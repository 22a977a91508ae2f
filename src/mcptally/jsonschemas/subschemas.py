"""Transforms each subschema of a trusted JSON Schema, without mistaking properties for keywords."""

from collections.abc import Callable
from typing import Any, Final

_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_VALUES: Final = frozenset({"const", "enum", "required", "default", "examples"})


def each_subschema(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy of a schema with `change` applied to every subschema, innermost first."""
    if isinstance(schema, list):
        return [each_subschema(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            out[key] = {name: each_subschema(item, change) for name, item in value.items()}
        elif key in _VALUES:
            out[key] = list(value) if isinstance(value, list) else value
        else:
            out[key] = each_subschema(value, change)
    return change(out)
