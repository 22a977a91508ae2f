"""Finds smells of tool definitions: what a model has to guess because the definition omits it.

A smell is not a violation of the protocol. It is a place of a definition from which a model cannot
learn how to call the tool, or reads more than it needs. `definition_advice` connects smells with
the calls that were refused there.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from mcptally.jsonschemas.dialects import UnusableSchemaError, parse_schema
from mcptally.jsonschemas.validators import compile_validator
from mcptally.rules.findings import (
    Check,
    concat_findings,
    finding_rule,
    make_findings,
    run_checks,
)
from mcptally.tables.formatting import formatted

LONG_DESCRIPTION: Final = 1024
"""Characters of a description that the function-calling API of OpenAI accepts."""

REFERRING_ARGUMENTS: Final = 50
"""Arguments with references per schema whose examples and defaults are checked."""

FEWEST_WORDS: Final = 3
"""Minimum number of words of a description that is compared with others."""

_FILLING: Final = frozenset(
    re.findall(
        r"\w+",
        "a an the of to in on for from by with and or this that it its is are be as at into your "
        "tool function method operation command call mcp server api "
        "parameter argument param arg value input field string number integer boolean object array",
    )
)
"""Words that do not describe the purpose of a tool or argument."""

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Argument(NamedTuple):
    """The facts about a top-level property of an input schema that the rules test."""

    definition: str
    name: str
    words: str
    """The name as lower-case words: `max length` of `max_length` and of `maxLength`."""
    pointer: str
    required: bool
    kinds: list[str]
    """JSON types that are allowed, without null."""
    described: bool
    repeats_name: bool
    text: str
    """Its description, and what the tool's description says beside its name."""
    bounded: bool
    """Whether keywords limit its value: bounds, a format, a pattern or an enumeration."""
    defaulted: bool


@functools.lru_cache(maxsize=1024)
def words_of(name: str) -> tuple[str, ...]:
    """The lower-case words of an identifier or of a text."""
    return tuple([word.lower() for word in _WORD.findall(_CAMEL.sub(" ", name))])


def find_smells(places: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Return the findings about smells of definitions.

    Args:
        places: the first listing of each definition of each server.
        definitions: distinct `DEFINITION` rows.
    """
    described = places.join(definitions.drop("tool"), on="definition", maintain_order="left")
    arguments = arguments_of(definitions)
    located = places.join(arguments, on="definition", maintain_order="left_right")
    return concat_findings(
        [
            *_check_descriptions(described),
            *_check_arguments(located),
            *_check_examples(places, definitions),
        ]
    )


def arguments_of(definitions: pl.DataFrame) -> pl.DataFrame:
    """Return the top-level properties of input schemas, as `Argument` rows."""
    rows = [
        argument
        for definition, description, text in definitions.select(
            "definition", "description", "input_schema"
        ).iter_rows()
        if text is not None
        for argument in _arguments(definition, description or "", text)
    ]
    return pl.DataFrame(rows, schema=_ARGUMENT_SCHEMA, orient="row")


_ARGUMENT_SCHEMA: Final = {
    "definition": pl.String(),
    "name": pl.String(),
    "words": pl.String(),
    "pointer": pl.String(),
    "required": pl.Boolean(),
    "kinds": pl.List(pl.String),
    "described": pl.Boolean(),
    "repeats_name": pl.Boolean(),
    "text": pl.String(),
    "bounded": pl.Boolean(),
    "defaulted": pl.Boolean(),
}


def _arguments(definition: str, description: str, text: str) -> Iterator[Argument]:
    schema = _parsed(text)
    if schema is None:
        return
    required = schema.get("required")
    properties = _properties(schema)
    mentions = _mentions(description, properties)
    for name, member in properties.items():
        alternatives = list(_alternatives(member, schema))
        said = next((str(a["description"]) for a in alternatives if a.get("description")), "")
        around = mentions[name]
        headings = (_HEADING.match(line) for line in around)
        documented = any(heading is not None and heading[1] == name for heading in headings)
        keywords = {keyword for each in alternatives for keyword in each}
        yield Argument(
            definition=definition,
            name=name,
            words=" ".join(words_of(name)),
            pointer=f"/inputSchema/properties/{_escape(name)}",
            required=isinstance(required, list) and name in required,
            kinds=sorted({kind for each in alternatives for kind in _kinds(each)} - {"null"}),
            described=bool(said.strip()) or documented,
            repeats_name=bool(said.strip()) and not documented and _repeats(said, name),
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
"""A line that begins with a name and goes on with what the name means."""

_NAME: Final = re.compile(r"[\w$][\w.$-]*(?<![.-])")
_KEPT: Final = 3
_LENGTH: Final = 200
_INDENT: Final = 8


def _mentions(description: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return what a description says beside the names of arguments.

    Three parts are kept per name. Each is on one line, ends before the next name and has at most
    200 characters.
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


def _parsed(text: str) -> dict[str, Any] | None:
    """Return a schema, or None if it is not an object that can be read."""
    try:
        schema = parse_schema(text)
    except UnusableSchemaError:
        return None
    return schema if isinstance(schema, dict) else None


def _properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the top-level properties whose schema is an object."""
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: member for name, member in found.items() if isinstance(member, dict)}


def _alternatives(member: Any, root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a property's schema and the schemas that it refers to or chooses from, one level."""
    if not isinstance(member, dict):
        return
    yield member
    choices = [c for key in ("anyOf", "oneOf", "allOf") for c in _list(member.get(key))]
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


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [k for k in (kind if isinstance(kind, list) else [kind]) if isinstance(k, str)]


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _repeats(text: str, name: str) -> bool:
    """Whether a text has no word that is not one of the name; `lists` repeats `list`."""
    known = [word[:4] for word in words_of(name)]
    return all(
        word in _FILLING or any(word.startswith(begin) for begin in known)
        for word in words_of(text)
    )


def _check_descriptions(described: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Check the descriptions of whole tools."""
    description = pl.col("description").fill_null("")
    length = description.str.len_chars()
    repeats = pl.Series(
        [
            bool(text and text.strip()) and _repeats(text, name)
            for name, text in described.select("tool", "description").iter_rows()
        ],
        dtype=pl.Boolean,
    )
    yield from run_checks(
        described.with_columns(repeats=repeats),
        Check(
            "definition.description_repeats_name",
            pl.col("repeats"),
            "the description says no more than the tool's name",
            evidence="description",
            path="/description",
        ),
        Check(
            "definition.description_long",
            length > LONG_DESCRIPTION,
            formatted("the description has {} characters", length),
            path="/description",
        ),
    )
    tools: dict[str | None, list[tuple[str, str, str | None]]] = {}
    for server, *tool in described.select(
        "server", "tool", "definition", "description"
    ).iter_rows():
        tools.setdefault(server, []).append((tool[0], tool[1], tool[2]))
    pairs = pl.DataFrame(
        [(server, *pair) for server, listed in tools.items() for pair in _contained(listed)],
        schema=dict.fromkeys(("server", "definition", "other"), pl.String),
        orient="row",
    )
    yield make_findings(
        "definition.overlap",
        described.join(pairs, on=["server", "definition"], nulls_equal=True, maintain_order="left"),
        formatted("the description of {} has all words of this one", "other"),
        evidence="description",
        path="/description",
    )


def _contained(tools: Iterable[tuple[str, str, str | None]]) -> Iterator[tuple[str, str]]:
    """Yield each definition whose description has no word of its own, and the tool that has all.

    Args:
        tools: name, definition and description of each tool of one server.
    """
    words: dict[str, tuple[str, frozenset[str]]] = {}
    for tool, definition, description in tools:
        words[tool] = definition, frozenset(words_of(description or "")) - _FILLING
    having: dict[str, set[str]] = {}
    for tool, (_, own) in words.items():
        for word in own:
            having.setdefault(word, set()).add(tool)
    for tool, (definition, own) in words.items():
        if len(own) >= FEWEST_WORDS:
            rarest, *others = sorted((having[word] for word in own), key=len)
            common = rarest.intersection(*others) - {tool}
            if common:
                yield definition, min(common)


def _check_arguments(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Check how an input schema and the description document each argument."""
    text = pl.col("text")
    string = pl.col("kinds").list.contains("string") & (pl.col("kinds").list.len() == 1)
    number = (pl.col("kinds").list.set_difference(["integer", "number"]).list.len() == 0) & (
        pl.col("kinds").list.len() > 0
    )
    free = ~pl.col("bounded")
    names, formats = finding_rule("definition.format_undocumented").matches
    (limits,) = finding_rule("definition.limits_unstated").matches
    (defaults,) = finding_rule("definition.default_unstated").matches
    (required,) = finding_rule("definition.required_in_prose").matches
    examples, *choices = finding_rule("definition.enum_in_prose").matches
    without_examples = text.str.replace_all(examples, " ")
    yield from run_checks(
        rows,
        Check(
            "definition.parameter_undescribed",
            ~pl.col("described"),
            formatted("no description of {}", "name"),
            path="pointer",
        ),
        Check(
            "definition.parameter_repeats_name",
            pl.col("repeats_name"),
            formatted("the description of {} says no more than its name", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.format_undocumented",
            string & free & pl.col("words").str.contains(names) & ~text.str.contains(formats),
            formatted("{} is text without a stated format", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.limits_unstated",
            number & free & ~text.str.contains(limits),
            formatted("{} is a number without stated limits", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.default_unstated",
            ~pl.col("required") & ~pl.col("defaulted") & ~text.str.contains(defaults),
            formatted("what happens without {} is not stated", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.enum_in_prose",
            string
            & free
            & pl.any_horizontal(without_examples.str.contains(choice) for choice in choices),
            formatted("the values of {} are listed in its description only", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.required_in_prose",
            ~pl.col("required") & text.str.contains(required),
            formatted("{} is optional in the schema and required in its description", "name"),
            evidence="text",
            path="pointer",
        ),
    )


def _check_examples(places: pl.DataFrame, definitions: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Check that the examples and defaults in a schema are valid in it."""
    rows = [
        (definition, pointer, f"{key} of {name}: {message}", value)
        for definition, text in definitions.select("definition", "input_schema").iter_rows()
        if text is not None and ('"default"' in text or '"example' in text)
        for name, key, pointer, message, value in _invalid_examples(text)
    ]
    names = ("definition", "pointer", "words", "value")
    found = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    yield make_findings(
        "definition.example_invalid",
        places.join(found, on="definition", maintain_order="left_right"),
        pl.col("words"),
        evidence="value",
        path="pointer",
    )


def _invalid_examples(text: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, keyword, pointer, message and value of each invalid example or default."""
    schema = _parsed(text)
    if schema is None:
        return
    shared = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    referring = 0
    for name, member in _properties(schema).items():
        values = [("default", member["default"])] if "default" in member else []
        values += [("example", value) for value in _list(member.get("examples"))]
        values += [("example", member["example"])] if "example" in member else []
        if not values:
            continue
        text = msgspec.json.encode(member).decode()
        if '"$ref"' in text:
            # Such an argument is compiled with all shared definitions: bound what that costs.
            referring += 1
            if referring > REFERRING_ARGUMENTS:
                continue
            text = msgspec.json.encode(shared | member).decode()
        elif "$schema" in shared:
            text = msgspec.json.encode({"$schema": shared["$schema"]} | member).decode()
        validate = compile_validator(text)
        if isinstance(validate, str):
            continue
        for key, value in values:
            state, message, _ = validate(value)
            if state == "invalid":
                pointer = f"/inputSchema/properties/{_escape(name)}"
                yield name, key, pointer, message or "", msgspec.json.encode(value).decode()
                break


def check_required_in_practice(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Return findings about optional arguments without which a server refuses calls."""
    (missing,) = finding_rule("definition.optional_required").matches
    refused = calls.filter(
        pl.col("verdict") == "business",
        pl.col("input_schema_state") == "valid",
        pl.col("definition").is_not_null(),
    )
    texts = refused.select(pl.col("error_text").unique())
    texts = texts.filter(pl.col("error_text").str.contains(missing))
    refused = refused.filter(pl.col("error_text").is_in(texts.get_column("error_text").implode()))
    if not refused.height:
        return concat_findings([])
    used = definitions.join(refused.select("definition").unique(), on="definition", how="semi")
    optional = arguments_of(used.unique("definition")).filter(~pl.col("required"))
    said = (
        pl.col("error_text")
        .str.extract(f"({missing})", 1)
        .str.replace_all(r"([a-z0-9])([A-Z])", "${1} ${2}")
        .str.to_lowercase()
        .str.replace_all(r"[^\p{L}\p{N}]+", " ")
    )
    name = pl.concat_str(pl.lit('"'), "name", pl.lit('":'))
    found = (
        refused.with_columns(said=pl.concat_str(pl.lit(" "), said, pl.lit(" ")))
        .join(optional.select("definition", "name", "words", "pointer"), on="definition")
        .filter(
            pl.col("said").str.contains(
                pl.concat_str(pl.lit(" "), "words", pl.lit(" ")), literal=True
            ),
            ~pl.col("arguments").fill_null("").str.contains(name, literal=True),
        )
        .sort("ts_ns", "seq", "pointer")
        .with_columns(times=pl.len().over("recording", "definition", "pointer"))
        .unique(["recording", "definition", "pointer"], keep="first", maintain_order=True)
    )
    return make_findings(
        "definition.optional_required",
        found,
        formatted("{} is optional, but {} calls without it were refused", "name", "times"),
        evidence=pl.col("error_text"),
        path="pointer",
    )
