"""JSON Schemas of strangers: in which dialect one is written, whether it is one, and what it costs.

Nothing is fetched, no pattern of a stranger is run by Python's `re`, and a schema whose evaluation
may explode is refused before any engine sees it. The dialect is the one that `$schema` names, else
2020-12 (MCP 2025-11-25, SEP-1613; older revisions leave it open).
"""

import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from mcptally.patterns import pattern

LATEST: Final = "2020-12"

MAX_BYTES: Final = 1 << 20
"""A schema's JSON text; the largest of recorded servers is 31 kB."""

MAX_DEPTH: Final = 100
"""Nesting of a schema; no recorded one has more than 20."""

MAX_STEPS: Final = 10_000
"""Subschemas that one value may be held against, along one path down into it; the most of the 696
schemas that were recorded is 23. A step costs up to 20 µs."""

STEPS_A_BYTE: Final = 32
"""Subschemas that a part of a value may be held against, however large the value is, and all its
errors are still gathered."""

PATIENCE: Final = 4_000
"""Subschemas times bytes of a value up to which all its errors are gathered: some 25 ms."""

LARGE: Final = 1 << 20
"""Bytes of a value up to which all its errors are gathered: they take up to 600 times as many."""

MAX_STEPS_OF_AN_ERROR: Final = 1_000
"""Subschemas beyond which not even one error is asked for: it holds those of every branch."""

_LISTED: Final = 256
"""Bytes of an `enum` or of names of members that count as a subschema."""

VALUE_DEPTH: Final = 64
"""The steps are counted for values as deep as this."""

_NAMES: Final = {
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "json-schema.org/schema": "2020-12",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-04/schema": "draft-04",
}

_URIS: Final = {
    name: ("https://" if name.startswith("20") else "http://") + uri
    for uri, name in _NAMES.items()
    if "/draft" in uri
}

ENGINES: Final[Mapping[str, Any]] = {
    "2020-12": jsonschema_rs.Draft202012Validator,
    "2019-09": jsonschema_rs.Draft201909Validator,
    "draft-07": jsonschema_rs.Draft7Validator,
    "draft-06": jsonschema_rs.Draft6Validator,
    "draft-04": jsonschema_rs.Draft4Validator,
}
"""Dialect → the engine that judges by it."""


class UnusableError(ValueError):
    """A schema that no value is judged by; the message says why."""


def read(text: str) -> Any:
    """The schema of a JSON text.

    Raises:
        UnusableError: too large, too deep, or neither an object nor a boolean.
    """
    if len(text) > MAX_BYTES:
        raise UnusableError(f"the schema is longer than {MAX_BYTES} characters")
    try:
        schema = msgspec.json.decode(text)
    except RecursionError:
        raise UnusableError(f"the schema is nested deeper than {MAX_DEPTH}") from None
    except msgspec.DecodeError as error:
        raise UnusableError(f"the schema is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise UnusableError("the schema is neither an object nor a boolean")
    if text.count("{") + text.count("[") >= MAX_DEPTH and depth(schema) > MAX_DEPTH:
        raise UnusableError(f"the schema is nested deeper than {MAX_DEPTH}")
    return schema


def depth(value: Any) -> int:
    """How many arrays and objects of a JSON value stand within each other at most."""
    level, deep = [value], 0
    while nested := [v for v in level if isinstance(v, dict | list)]:
        deep += 1
        level = [w for v in nested for w in (v.values() if isinstance(v, dict) else v)]
    return deep


def dialect(schema: Any) -> str:
    """The dialect that a schema is written in.

    Raises:
        UnusableError: `$schema` names one that is not known.
    """
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if name is None:
        return LATEST
    known = None
    if isinstance(name, str):
        known = _NAMES.get(name.removesuffix("#").removeprefix("https://").removeprefix("http://"))
    if known is None:
        raise UnusableError(f"the dialect is not known: $schema is {str(name)[:200]!r}")
    return known


def meta_errors(schema: Any) -> list[tuple[str, str]]:
    """Where and how a schema breaks its dialect: (JSON Pointer, words), by jsonschema.

    Raises:
        UnusableError: the dialect is not known, or jsonschema gave up.
    """
    name = dialect(schema)
    members = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(members, dict):
        return sorted(_meta_errors(name, schema))
    # Arguments of many tools are alike: each distinct one is looked at once.
    found = _meta_errors(name, schema | {"properties": {}})
    for member, value in members.items():
        at = pointer(("properties", member))
        found |= {(at + inner, words) for inner, words in _meta_errors(name, value)}
    return sorted(found)


_META: Final[dict[tuple[str, bytes], frozenset[tuple[str, str]]]] = {}
"""What is wrong with a schema, by dialect and text; bounded by `MAX_KNOWN`."""

MAX_KNOWN: Final = 65536


def _meta_errors(name: str, schema: Any) -> frozenset[tuple[str, str]]:
    """Where and how a schema breaks a dialect."""
    if isinstance(schema, dict):
        schema = {
            key: value
            for key, value in schema.items()
            if not (key in {"description", "title"} and isinstance(value, str))
        }
    key = (name, msgspec.json.encode(schema))
    known = _META.get(key)
    if known is not None:
        return known
    errors = [] if _is_schema(name, schema) else _faults(name, schema)
    found = {(pointer(e.absolute_path), _meta_words(e)) for e in errors}
    if b'"pattern' in key[1]:
        found |= {
            (at, f"the pattern {p[:100]!r} cannot be read") for at, p in _bad_patterns(schema)
        }
    if len(_META) >= MAX_KNOWN:
        _META.clear()
    _META[key] = frozenset(found)
    return _META[key]


def _is_schema(name: str, schema: Any) -> bool:
    """Whether the fast engine finds nothing wrong with a schema as such."""
    if not isinstance(schema, dict):
        return False
    try:
        return jsonschema_rs.meta.is_valid(schema | {"$schema": _URIS[name]})
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return False


def _faults(name: str, schema: Any) -> list[Any]:
    from mcptally import reference  # noqa: PLC0415 - a tenth of a second, seldom needed

    try:
        return reference.faults(name, schema)
    except RecursionError:
        raise UnusableError(f"the schema is nested deeper than {MAX_DEPTH}") from None


def pointer(parts: Any) -> str:
    """A JSON Pointer (RFC 6901)."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return "".join(f"/{part}" for part in escaped)


def _meta_words(error: Any) -> str:
    if error.validator == "type":
        kinds = error.validator_value
        wanted = kinds if isinstance(kinds, str) else " or ".join(kinds)
        return f"is no {wanted}"
    if error.validator == "anyOf" and error.path and error.path[-1] == "type":
        return "is no JSON type"
    return str(error.message)[:200]


def _bad_patterns(schema: Any) -> Iterator[tuple[str, str]]:
    """Places of patterns that are no regular expression (ECMA 262, as jsonschema-rs reads it)."""
    for at, node in _nodes(schema):
        texts = [node.get("pattern"), *_keys(node.get("patternProperties"))]
        for text in texts:
            if isinstance(text, str) and pattern(text) is None:
                yield at, text


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE: Final = ("not", "if", "then", "else")
_IN_PLACE_MAP: Final = ("dependentSchemas", "dependencies")
_BELOW_ONE: Final = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)
_BELOW_MAP: Final = ("properties", "patternProperties")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def _nodes(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subschema that is an object, with its JSON Pointer."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        at, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield at, node
        for key, value in node.items():
            if key in _BELOW_MAP or key in _IN_PLACE_MAP or key in {"$defs", "definitions"}:
                if isinstance(value, dict):
                    todo += [(f"{at}{pointer((key, k))}", v) for k, v in value.items()]
            elif key in _IN_PLACE or key in {"prefixItems", "items"}:
                if isinstance(value, list):
                    todo += [(f"{at}/{key}/{i}", v) for i, v in enumerate(value)]
                else:
                    todo.append((f"{at}/{key}", value))
            elif key in _IN_PLACE_ONE or key in _BELOW_ONE:
                todo.append((f"{at}/{key}", value))


def _places(nodes: dict[str, dict[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
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


def _target(at: str, reference: str, names: dict[str, str], resource: dict[str, str]) -> str | None:
    """The JSON Pointer that a reference leads to; None: out of the document."""
    base, _, fragment = reference.partition("#")
    root = names.get(base) if base else resource.get(at, "")
    if root is None:
        return None
    if fragment.startswith("/"):
        return root + urllib.parse.unquote(fragment)
    return names.get("#" + fragment) if fragment else root


def outside_references(schema: Any) -> list[tuple[str, str]]:
    """References out of the document: (JSON Pointer, target). None of them is followed."""
    nodes = dict(_nodes(schema))
    names, resource = _places(nodes)
    return [
        (f"{at}/{key}", reference)
        for at, node in nodes.items()
        for key in _REFERENCES
        if isinstance(reference := node.get(key), str)
        and not reference.startswith("#")
        and reference.partition("#")[0].split("://")[-1] not in _NAMES
        and _target(at, reference, names, resource) is None
    ]


def deepest_value(schema: Any) -> int | None:
    """How deep a value may be before judging it may cost too much; None: it does not matter.

    Without references a schema is a tree and costs at most its size a value. With them, or with
    `unevaluated…`, for which all that holds for a value is gone through again, the subschemas that
    one value is held against are counted along one path down into it.

    Raises:
        UnusableError: a reference leads back to itself on the spot, or a flat value costs too much.
    """
    for deep, steps in enumerate(_steps_by_depth(schema)):
        if steps > MAX_STEPS:
            if not deep:
                raise UnusableError(f"a value would be held against over {MAX_STEPS} subschemas")
            return deep
    return None


def errors_of(validator: Any, schema: Any, value: Any) -> list[Any]:
    """The errors of an invalid value, by a validator of jsonschema-rs made of a schema.

    They are all there are; or the one that it comes to first, where to gather all would take too
    much; or none, where that one would. The schema is None where it is ours and holds no trap.
    """
    size = len(msgspec.json.encode(value))
    steps = None if schema is None else _costly_steps(schema, size)
    if steps is None and size <= LARGE:
        return list(validator.iter_errors(value))
    if steps is None or steps <= MAX_STEPS_OF_AN_ERROR:
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
    return []


def is_costly(schema: Any, value: Any) -> bool:
    """Whether to gather all errors of a value takes longer than a stranger's schema may."""
    return _costly_steps(schema, len(msgspec.json.encode(value))) is not None


def _costly_steps(schema: Any, size: int) -> int | None:
    """Subschemas that a part of a value is held against, if that is too many for its bytes.

    Each error takes up to 20 µs: a schema of 30 kB could keep us busy for a minute by a value of
    8 kB.
    """
    if len(msgspec.json.encode(schema)) * size <= PATIENCE:
        return None
    steps = max(_steps_by_depth(schema), default=0)
    return steps if steps > STEPS_A_BYTE and steps * size > PATIENCE else None


def _steps_by_depth(schema: Any) -> Iterator[int]:
    """Subschemas that a value is held against, along one path down into it, level by level.

    Raises:
        UnusableError: a reference leads back to itself on the spot.
    """
    nodes = dict(_nodes(schema))
    names, resource = _places(nodes)
    edges = {at: _edges(at, node, names, resource) for at, node in nodes.items()}
    order = _order(edges)
    below: dict[str, int] = dict.fromkeys(nodes, 0)
    for _ in range(VALUE_DEPTH):
        here: dict[str, int] = {}
        for at in order:
            here[at] = _steps(edges[at], below, here)
        yield here.get("", 0)
        if here == below:
            return
        below = here


class _Edges(NamedTuple):
    here: tuple[str, ...]
    """Subschemas that hold for the same value."""
    each: tuple[str, ...]
    """Subschemas that may hold for any value below."""
    one: tuple[str, ...]
    """Subschemas of which one at most holds for a value below."""
    times: int
    """How often those that hold for the same value are gone through."""
    own: int
    """What the node's own keywords count: 1, and what long lists of them add."""


def _order(edges: dict[str, _Edges]) -> list[str]:
    """The nodes, each after those that hold for the same value; without recursion: untrusted.

    Raises:
        UnusableError: a reference leads back to itself on the spot.
    """
    order: dict[str, None] = {}
    open_: set[str] = set()
    todo = [(at, False) for at in reversed(edges)]
    while todo:
        node, done = todo.pop()
        if done:
            order[node] = None
            open_.discard(node)
        elif node in edges and node not in order:
            if node in open_ or not open_.isdisjoint(edges[node].here):
                raise UnusableError(
                    "a reference leads back to itself without going down into a value"
                )
            open_.add(node)
            todo.append((node, True))
            todo += [(target, False) for target in edges[node].here]
    return list(order)


def _steps(node: _Edges, below: dict[str, int], here: dict[str, int]) -> int:
    """Subschemas that a value is held against at a node, from those of the level below."""
    total = node.own + node.times * sum([here.get(n, 1) for n in node.here])
    total += sum([below.get(n, 1) for n in node.each])
    total += max([below.get(n, 1) for n in node.one], default=0)
    return min(total, MAX_STEPS + 1)


def _edges(
    at: str, node: dict[str, Any], names: dict[str, str], resource: dict[str, str]
) -> _Edges:
    here = [
        f"{at}/{key}/{i}"
        for key in _IN_PLACE
        if isinstance(node.get(key), list)
        for i in range(len(node[key]))
    ]
    here += [f"{at}/{key}" for key in _IN_PLACE_ONE if key in node]
    here += [
        f"{at}{pointer((key, name))}" for key in _IN_PLACE_MAP for name in _keys(node.get(key))
    ]
    for key in _REFERENCES:
        if isinstance(reference := node.get(key), str):
            target = _target(at, reference, names, resource)
            if target is not None:
                here.append(target)
    each = [f"{at}/{key}" for key in _BELOW_ONE if isinstance(node.get(key), dict)]
    each += [
        f"{at}{pointer(('patternProperties', name))}"
        for name in _keys(node.get("patternProperties"))
    ]
    one = [f"{at}{pointer(('properties', name))}" for name in _keys(node.get("properties"))]
    for key in ("prefixItems", "items"):
        if isinstance(node.get(key), list):
            one += [f"{at}/{key}/{i}" for i in range(len(node[key]))]
    again = "unevaluatedProperties" in node or "unevaluatedItems" in node
    # Each error holds the options and the value, each missing member another error.
    lists = [node[key] for key in ("enum", "required", "dependentRequired") if key in node]
    own = 1 + sum(len(msgspec.json.encode(each)) for each in lists) // _LISTED
    return _Edges(tuple(here), tuple(each), tuple(one), 2 if again else 1, own)


def may_explode(text: str) -> bool:
    """Whether a schema's JSON text has a keyword that `deepest_value` has to look at."""
    # An escape may spell any of them.
    return any(word in text for word in ("$ref", "Ref", "unevaluated", "\\u"))
