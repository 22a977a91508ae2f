"""The subschemas of a stranger's schema by their JSON Pointers, and where its references lead.

Nothing is fetched: a reference out of the document leads nowhere.
"""

import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
IN_PLACE_ONE: Final = ("not", "if", "then", "else")
IN_PLACE_MAP: Final = ("dependentSchemas", "dependencies")
BELOW_ONE: Final = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)
BELOW_MAP: Final = ("properties", "patternProperties")
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords by where the subschemas in them hold: for the same value (in a list, alone, by name),
for values below it (alone, by name), or somewhere else."""


def nodes_of(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subschema that is an object, with its JSON Pointer."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        at, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield at, node
        for key, value in node.items():
            if key in BELOW_MAP or key in IN_PLACE_MAP or key in {"$defs", "definitions"}:
                if isinstance(value, dict):
                    todo += [(f"{at}{pointer((key, k))}", v) for k, v in value.items()]
            elif key in IN_PLACE or key in {"prefixItems", "items"}:
                if isinstance(value, list):
                    todo += [(f"{at}/{key}/{i}", v) for i, v in enumerate(value)]
                else:
                    todo.append((f"{at}/{key}", value))
            elif key in IN_PLACE_ONE or key in BELOW_ONE:
                todo.append((f"{at}/{key}", value))


def places(nodes: dict[str, dict[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
    """Where names lead: `$id` or anchor → JSON Pointer; and the resource that each node is in."""
    names: dict[str, str] = {}
    resource: dict[str, str] = {}
    for at in sorted(nodes, key=len):
        node = nodes[at]
        own = node.get("$id", node.get("id"))
        is_resource = isinstance(own, str) and not own.startswith("#")
        above = at.rsplit("/", 1)[0] if at else ""
        while above and above not in resource:
            above = above.rsplit("/", 1)[0]
        resource[at] = at if is_resource else resource.get(above, "")
        if isinstance(own, str):
            names[own.removesuffix("#")] = at
            names.setdefault(own.removesuffix("#").rsplit("/", 1)[-1], at)
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(key), str):
                names["#" + node[key]] = at
    return names, resource


def target_of(
    at: str, reference: str, names: dict[str, str], resource: dict[str, str]
) -> str | None:
    """The JSON Pointer that a reference leads to; None: out of the document."""
    base, _, fragment = reference.partition("#")
    root = names.get(base) if base else resource.get(at, "")
    if root is None:
        return None
    if fragment.startswith("/"):
        return root + urllib.parse.unquote(fragment)
    return names.get("#" + fragment) if fragment else root


def keys(value: Any) -> list[str]:
    """The names of members of an object; none of what is no object."""
    return list(value) if isinstance(value, dict) else []


def pointer(parts: Any) -> str:
    """A JSON Pointer (RFC 6901)."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return "".join(f"/{part}" for part in escaped)
