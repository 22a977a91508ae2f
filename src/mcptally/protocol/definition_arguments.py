"""Collects the facts about tool arguments that the rules about definition smells test.

An argument is a top-level property of an input schema. Text next to an argument's name in the
tool's description counts as documentation of the argument.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import polars as pl

from mcptally.jsonschemas.dialects import UnusableSchemaError, parse_schema
from mcptally.jsonschemas.walk import pointer
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.stages import Definitions

FILLING_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "a an the of to in on for from by with and or this that it its is are be as at into your "
        "tool function method operation command call mcp server api "
        "parameter argument param arg value input field string number integer boolean object array",
    )
)
"""Words that say nothing about the purpose of a tool or argument."""

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Arguments(StageTable):
    """One row per top-level property of an input schema, with the facts that smell rules test."""

    definition = Definitions.definition
    name = Column(pl.String, "Name of the property.")
    words = Column(
        pl.String, "The name as lower-case words: `max length` of `max_length` and of `maxLength`."
    )
    pointer = Column(pl.String, "JSON Pointer to the property in the definition.")
    required = Column(pl.Boolean, "Whether the schema requires it.")
    kinds = Column(pl.List(pl.String), "JSON types that are allowed, without null.")
    described = Column(pl.Boolean, "Whether its schema or the tool's description describes it.")
    repeats_name = Column(pl.Boolean, "Whether its description only repeats its name.")
    text = Column(
        pl.String, "Its description, and what the tool's description says beside its name."
    )
    bounded = Column(
        pl.Boolean,
        "Whether keywords limit its value: bounds, a format, a pattern or an enumeration.",
    )
    defaulted = Column(pl.Boolean, "Whether its schema has a default.")


@functools.lru_cache(maxsize=1024)
def words_of(name: str) -> tuple[str, ...]:
    """Split an identifier or text into lower-case words."""
    return tuple([word.lower() for word in _WORD.findall(_CAMEL.sub(" ", name))])


def arguments_of(definitions: pl.DataFrame) -> pl.DataFrame:
    """Return the `Arguments` table for the input schemas of these definitions."""
    columns = [Definitions.definition.name, Definitions.description.name]
    rows = [
        argument
        for definition, description, text in definitions[
            [*columns, Definitions.input_schema.name]
        ].iter_rows()
        if text is not None
        for argument in _arguments(definition, description or "", text)
    ]
    return pl.DataFrame(rows, schema=Arguments.schema(), orient="row")


def _arguments(definition: str, description: str, text: str) -> Iterator[dict[str, Any]]:
    schema = parsed_schema(text)
    if schema is None:
        return
    required = schema.get("required")
    properties = properties_of(schema)
    mentions = _mentions(description, properties)
    for name, member in properties.items():
        alternatives = list(_alternatives(member, schema))
        said = next((str(a["description"]) for a in alternatives if a.get("description")), "")
        around = mentions[name]
        headings = (_HEADING.match(line) for line in around)
        documented = any(heading is not None and heading[1] == name for heading in headings)
        keywords = {keyword for each in alternatives for keyword in each}
        yield dict(  # noqa: C408
            definition=definition,
            name=name,
            words=" ".join(words_of(name)),
            pointer=pointer_to(name),
            required=isinstance(required, list) and name in required,
            kinds=sorted({kind for each in alternatives for kind in _kinds(each)} - {"null"}),
            described=bool(said.strip()) or documented,
            repeats_name=bool(said.strip()) and not documented and repeats_name(said, name),
            text="\n".join([said, *around]),
            bounded=not keywords.isdisjoint(_BOUNDS),
            defaulted="default" in keywords,
        )


_BOUNDS: Final = frozenset(
    {
        *("enum", "const", "pattern", "format", "multipleOf"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)

_HEADING: Final = re.compile(
    r"[ \t]*(?:[-*] ?)?[`\"'*]*([\w.$-]+)[`\"'*]*[ ]?(?:\([^()]*\) ?)?[:=\u2013-]"
)
"""Matches the beginning of a line that names an argument and then explains it."""

_NAME: Final = re.compile(r"[\w$][\w.$-]*(?<![.-])")
_KEPT: Final = 3
_LENGTH: Final = 200
_INDENT: Final = 8


def _mentions(description: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Map each argument's name to the text next to the name in a description.

    At most three passages are kept per name. A passage is on one line, ends before the next name
    and has at most 200 characters.
    """
    found: dict[str, list[str]] = {name: [] for name in names}
    for line in description.splitlines():
        places = [match for match in _NAME.finditer(line) if match[0] in found]
        ends = [*(match.start() for match in places[1:]), len(line)]
        for match, end in zip(places, ends, strict=False):
            start = 0 if match.start() <= _INDENT and match is places[0] else match.start()
            parts = found[match[0]]
            if len(parts) < _KEPT:
                parts.append(line[start : min(end, match.end() + _LENGTH)])
    return found


def parsed_schema(text: str) -> dict[str, Any] | None:
    """Parse a schema's JSON text; return None if it is unusable or not an object."""
    try:
        schema = parse_schema(text)
    except UnusableSchemaError:
        return None
    return schema if isinstance(schema, dict) else None


def properties_of(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the top-level properties of a schema whose own schemas are objects."""
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: member for name, member in found.items() if isinstance(member, dict)}


def _alternatives(member: Any, root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a property's schema and, one level deep, the schemas that it refers to or combines.

    Args:
        member: the property's schema.
        root: the schema to which references are relative.
    """
    if not isinstance(member, dict):
        return
    yield member
    choices = [c for key in ("anyOf", "oneOf", "allOf") for c in list_of(member.get(key))]
    for choice in [member, *choices]:
        if not isinstance(choice, dict):
            continue
        if choice is not member:
            yield choice
        match str(choice.get("$ref", "")).split("/"):
            case ["#", ("$defs" | "definitions") as where, name]:
                group = root.get(where)
                target = group.get(name) if isinstance(group, dict) else None
                if isinstance(target, dict):
                    yield target


def list_of(value: Any) -> list[Any]:
    """Return the value if it is a list; otherwise an empty list."""
    return value if isinstance(value, list) else []


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [k for k in (kind if isinstance(kind, list) else [kind]) if isinstance(k, str)]


def pointer_to(name: str) -> str:
    """Return the JSON Pointer to an argument in a definition."""
    return pointer(("inputSchema", "properties", name))


def repeats_name(text: str, name: str) -> bool:
    """Return whether a text consists only of words from a name, possibly inflected (`lists`)."""
    known = [word[:4] for word in words_of(name)]
    return all(
        word in FILLING_WORDS or any(word.startswith(begin) for begin in known)
        for word in words_of(text)
    )
