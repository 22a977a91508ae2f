"""Make JSON values from a JSON Schema: some that satisfy it, many that break it in one place."""

import copy
from collections.abc import Iterator
from typing import Any

WRONG: tuple[Any, ...] = (None, True, 1.5, 7, "x", [], {}, [{}], {"a": 1})


class Instances:
    """Makes values that satisfy the schemas in the `$defs` of one document."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = definitions

    def some(self, schema: Any, *, full: bool, depth: int = 6) -> list[Any]:
        """Values that satisfy a schema, with all members (`full`) or only the required ones."""
        if not isinstance(schema, dict) or not schema:
            return [{}]
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[-1]
            return self.some(self.definitions[name], full=full, depth=depth)
        if "const" in schema:
            return [schema["const"]]
        if "enum" in schema:
            return list(schema["enum"])
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return [v for s in schema[union] for v in self.some(s, full=full, depth=depth)][:12]
        if "allOf" in schema:
            merged: dict[str, Any] = {}
            for part in schema["allOf"]:
                for value in self.some(part, full=full, depth=depth)[:1]:
                    merged |= value
            return [merged]
        kind = schema.get("type", "object")
        if isinstance(kind, list):
            return [v for k in kind for v in self.some({"type": k}, full=full, depth=depth)]
        if kind == "object":
            return self.objects(schema, full=full, depth=depth)
        if kind == "array":
            items = schema.get("items", {})
            if depth <= 0:
                return [[]]
            return [[], *([v] for v in self.some(items, full=full, depth=depth - 1))]
        return [{"string": "x", "integer": 3, "number": 1.5, "boolean": True, "null": None}[kind]]

    def objects(self, schema: Any, *, full: bool, depth: int) -> list[Any]:
        members = schema.get("properties", {})
        required = schema.get("required", ())
        names = [n for n in members if n in required or (full and depth > 0)]
        choices = {n: self.some(members[n], full=full, depth=depth - 1) for n in names}
        base = {name: values[0] for name, values in choices.items()}
        out = [base]
        # Each other choice of a member once, all else as in the first.
        for name, values in choices.items():
            out += [base | {name: value} for value in values[1:]]
        return out[:40]


def broken(value: Any) -> Iterator[tuple[str, Any]]:
    """Copies of the value with one member removed or replaced: (what was changed, copy)."""
    for path in _paths(value):
        at = "/" + "/".join(map(str, path))
        for wrong in WRONG:
            changed = copy.deepcopy(value)
            _parent(changed, path)[path[-1]] = wrong
            yield f"{at}={wrong!r}", changed
        if isinstance(path[-1], str):
            changed = copy.deepcopy(value)
            del _parent(changed, path)[path[-1]]
            yield f"{at} gone", changed


def _parent(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path[:-1]:
        value = value[part]
    return value


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*at, key)
        yield from _paths(inner, (*at, key))
