"""Finds the subschemas of an untrusted schema, and the targets of its references, by JSON Pointer.

Nothing is fetched, so a reference to another document has no target. Engines differ in how they
resolve references within a document (URI equality, base URI, scope of dynamic anchors). Therefore
all possible targets are returned, and the caller assumes the most expensive one.
"""

import re
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

# Keywords that apply subschemas to the same value (a list of subschemas, one subschema, or one per
# name), or to child values (one subschema, or one per name).
IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
IN_PLACE_ONE: Final = ("not", "if", "then", "else")
IN_PLACE_MAP: Final = ("dependentSchemas", "dependencies")
BELOW_ONE: Final = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)
BELOW_MAP: Final = ("properties", "patternProperties")
MAPS: Final = frozenset((*BELOW_MAP, *IN_PLACE_MAP, "$defs", "definitions"))
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that refer to a subschema elsewhere, which then applies to the same value."""

_IDS: Final = ("$id", "id")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:")

_MAX_COMPARED_IDS: Final = 64
"""Maximum number of ids with the same last step for which the other steps are compared, too."""


def nodes_of(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON Pointer and the content of every subschema that is an object."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        at, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield at, node
        for key, value in node.items():
            if key in MAPS:
                if isinstance(value, dict):
                    todo += [(f"{at}{pointer((key, k))}", v) for k, v in value.items()]
            elif key in IN_PLACE or key in {"prefixItems", "items"}:
                if isinstance(value, list):
                    todo += [(f"{at}/{key}/{i}", v) for i, v in enumerate(value)]
                else:
                    todo.append((f"{at}/{key}", value))
            elif key in IN_PLACE_ONE or key in BELOW_ONE:
                todo.append((f"{at}/{key}", value))


class References:
    """Resolves each reference in a schema to all of its possible targets."""

    def __init__(self, schema: Any) -> None:
        # Include all objects: engines look for ids in different places, and a JSON Pointer may
        # refer to an object that is not a subschema.
        self.objects = dict(_objects(schema))
        """Maps the JSON Pointer of every object in the schema to the object, which need not be a
        subschema."""
        self._resources = {""}
        self._ids: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        self._anchors: dict[str, list[str]] = {}
        self._recursive: list[str] = []
        for at, node in self.objects.items():
            for key in _IDS:
                self._add_id(at, node.get(key))
            for key in _ANCHORS:
                if isinstance(anchor := node.get(key), str):
                    self._anchors.setdefault(anchor.lower(), []).append(at)
            if node.get("$recursiveAnchor") is True:
                self._recursive.append(at)

    def targets(self, at: str, key: str, reference: str) -> list[str]:
        """Return the JSON Pointers of all objects to which a reference may resolve.

        Args:
            at: JSON Pointer of the node that contains the reference.
            key: the reference's keyword, one of `REFERENCES`.
            reference: the keyword's value.
        """
        uri, _, fragment = reference.partition("#")
        fragment = urllib.parse.unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment.lower(), [])
        steps = _steps(uri)
        roots = self._enclosing(at, uri) if steps is None else self._with_id(steps)
        found: list[str | None] = [self._under(root, fragment) for root in roots]
        if key == "$recursiveRef":
            found += self._recursive
        return [target for target in dict.fromkeys(found) if target in self.objects]

    def leads_out(self, reference: str) -> bool:
        """Return whether a reference leads to another document."""
        steps = _steps(reference.partition("#")[0])
        return steps is not None and not self._with_id(steps)

    def _add_id(self, at: str, value: object) -> None:
        if not isinstance(value, str):
            return
        uri, _, anchor = value.partition("#")
        if (steps := _steps(uri)) is not None:
            self._resources.add(at)
            self._ids.setdefault(steps[-1], []).append((steps, at))
        if anchor:
            self._anchors.setdefault(anchor.lower(), []).append(at)

    def _with_id(self, steps: tuple[str, ...]) -> list[str]:
        """Return the schema resources whose id may equal a URI. Both id and URI may be relative."""
        ids = self._ids.get(steps[-1], [])
        if len(ids) > _MAX_COMPARED_IDS:
            return [at for _, at in ids]
        lengths = ((own, at, min(len(own), len(steps))) for own, at in ids)
        return [at for own, at, common in lengths if own[-common:] == steps[-common:]]

    def _enclosing(self, at: str, uri: str) -> list[str]:
        """Return the resources that may be the base of a reference at `at`.

        A reference with a `uri` may have any resource as its base.
        """
        if uri:
            return sorted(self._resources)
        own = []
        while at:
            if at in self._resources:
                own.append(at)
            at = at.rpartition("/")[0]
        return [*own, ""]

    def _under(self, root: str, fragment: str) -> str | None:
        """Return the normalised pointer of a fragment under a root; None if nothing is there."""
        part: Any = self.objects[root]
        for token in fragment.split("/")[1:]:
            step: str | int = token.replace("~1", "/").replace("~0", "~")
            if isinstance(part, list):
                # Engines accept indices such as 01 and +1 for 1.
                try:
                    step = range(len(part))[int(step)]
                except (ValueError, IndexError):
                    return None
            elif not isinstance(part, dict) or step not in part:
                return None
            part = part[step]
            root += pointer((step,))
        return root


def _objects(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON Pointer and the content of every object in a JSON value."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        at, value = todo.pop()
        inner: Any = ()
        if isinstance(value, dict):
            yield at, value
            inner = value.items()
        elif isinstance(value, list):
            inner = enumerate(value)
        todo += [(at + pointer((k,)), v) for k, v in inner if isinstance(v, dict | list)]


def _steps(uri: str) -> tuple[str, ...] | None:
    """Split a URI into host and path steps, normalised so that equal URIs have equal steps.

    Returns None if there is no path, because the URI then refers to the enclosing resource. A
    relative URI yields the last steps of the URI that it resolves to.
    """
    path = urllib.parse.unquote("".join(uri.split()).partition("?")[0]).lower()
    if not path:
        return None
    if scheme := _SCHEME.match(path):
        path = path[scheme.end() :]
    host = []
    if path.startswith("//"):
        name, _, path = path[2:].partition("/")
        host = [name.rpartition("@")[2].partition(":")[0]]
    *most, last = path.removeprefix("/").split("/")
    steps: list[str] = []
    for step in most:
        if step == "..":
            steps = steps[:-1]
        elif step != ".":
            steps.append(step)
    if last == "..":
        steps = steps[:-1]
    return (*host, *steps, "" if last in {".", ".."} else last)


def keys(value: Any) -> list[str]:
    """Return the member names of an object; an empty list if `value` is not an object."""
    return list(value) if isinstance(value, dict) else []


def pointer(parts: Any) -> str:
    """Return the JSON Pointer (RFC 6901) that consists of these names and indices."""
    return "".join(["/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts])
