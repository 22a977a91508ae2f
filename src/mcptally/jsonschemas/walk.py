"""The subschemas of a stranger's schema by their JSON Pointers, and where its references lead.

Nothing is fetched: a reference out of the document leads nowhere. What one inside of it leads to
depends on the engine here and there (which spellings of a URI are equal, what it is resolved
against, where a dynamic anchor is looked for), so all that it may lead to are told: who asks wants
to know what the worst of them costs.
"""

import re
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

_IDS: Final = ("$id", "id")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:")

_ALIKE: Final = 64
"""Names that end alike beyond which nobody looks how much of them is."""


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


class References:
    """Where the references in a schema may lead."""

    def __init__(self, schema: Any) -> None:
        # Anywhere: engines differ in where they look for names, and a reference by its place may
        # lead into what is no subschema by any keyword.
        self.objects = dict(_objects(schema))
        """JSON Pointer → object, whether it stands where a subschema does or not."""
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
        """JSON Pointers of the objects that a reference in a node may lead to; none: to nothing.

        `key` is the reference's keyword, one of `REFERENCES`.
        """
        uri, _, fragment = reference.partition("#")
        fragment = urllib.parse.unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment.lower(), [])
        steps = _steps(uri)
        roots = self._around(at, uri) if steps is None else self._called(steps)
        found: list[str | None] = [self._under(root, fragment) for root in roots]
        if key == "$recursiveRef":
            found += self._recursive
        return [target for target in dict.fromkeys(found) if target in self.objects]

    def leads_out(self, reference: str) -> bool:
        """Whether a reference is to another document."""
        steps = _steps(reference.partition("#")[0])
        return steps is not None and not self._called(steps)

    def _add_id(self, at: str, told: object) -> None:
        if not isinstance(told, str):
            return
        uri, _, anchor = told.partition("#")
        if (steps := _steps(uri)) is not None:
            self._resources.add(at)
            self._ids.setdefault(steps[-1], []).append((steps, at))
        if anchor:
            self._anchors.setdefault(anchor.lower(), []).append(at)

    def _called(self, steps: tuple[str, ...]) -> list[str]:
        """The resources of an id that may be equal to a URI: either may be relative."""
        ids = self._ids.get(steps[-1], [])
        if len(ids) > _ALIKE:
            return [at for _, at in ids]
        lengths = ((own, at, min(len(own), len(steps))) for own, at in ids)
        return [at for own, at, common in lengths if own[-common:] == steps[-common:]]

    def _around(self, at: str, uri: str) -> list[str]:
        """The resources that a node may be in; all where a URI changes more than the fragment."""
        if uri:
            return sorted(self._resources)
        own = []
        while at:
            if at in self._resources:
                own.append(at)
            at = at.rpartition("/")[0]
        return [*own, ""]

    def _under(self, root: str, fragment: str) -> str | None:
        """The place below a root that a fragment names, as it is spelt here."""
        part: Any = self.objects[root]
        for token in fragment.split("/")[1:]:
            step: str | int = token.replace("~1", "/").replace("~0", "~")
            if isinstance(part, list):
                # Engines read 01, +1 and the like for 1.
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
    """Every object of a JSON value, with its JSON Pointer."""
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
    """Host and path of a URI, in a spelling that it shares with every other that may be equal.

    None where there is no path: then it is what stands around it. A relative URI has the last steps
    of what it is resolved to.
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
    """The names of members of an object; none of what is no object."""
    return list(value) if isinstance(value, dict) else []


def pointer(parts: Any) -> str:
    """A JSON Pointer (RFC 6901)."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return "".join(f"/{part}" for part in escaped)
