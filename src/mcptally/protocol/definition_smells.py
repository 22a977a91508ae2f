"""Finds smells in tool definitions: weaknesses that may make a model call a tool wrongly.

A smell is not a protocol violation. The definition either omits something that the model needs to
call the tool, or says more than the model needs. `definition_advice` connects smells with the
refused calls that they may explain.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import polars as pl

from mcptally.jsonschemas.validators import compile_validator
from mcptally.protocol.definition_arguments import (
    FILLING_WORDS,
    Arguments,
    arguments_of,
    list_of,
    parsed_schema,
    pointer_to,
    properties_of,
    repeats_name,
    words_of,
)
from mcptally.rules.findings import (
    Check,
    concat_findings,
    finding_rule,
    make_findings,
    run_checks,
    select_for_findings,
)
from mcptally.tables.arrow import matches
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Definitions, Scored

LONG_DESCRIPTION: Final = 1024
"""Maximum length in characters of a description that OpenAI's function-calling API accepts."""

REFERRING_ARGUMENTS: Final = 50
"""Maximum number of arguments with references, per schema, whose examples and defaults are checked.
"""

FEWEST_WORDS: Final = 3
"""Minimum number of words in a description that is compared with the descriptions of other tools.
"""


def find_smells(
    places: pl.DataFrame, definitions: pl.DataFrame, described: pl.DataFrame
) -> pl.DataFrame:
    """Return the findings about smells in definitions.

    Args:
        places: one row per server and definition, for the definition's first listing.
        definitions: distinct `Definitions`.
        described: `places`, joined with the definitions.
    """
    arguments = arguments_of(definitions)
    located = places.join(arguments, on="definition", maintain_order="left_right")
    return concat_findings(
        [
            *_check_descriptions(described),
            *_check_arguments(located),
            *_check_examples(places, definitions),
        ]
    )


def _check_descriptions(described: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Check the description of each tool."""
    description = Definitions.description.col.fill_null("")
    length = description.str.len_chars()
    repeats = pl.Series(
        [
            bool(text and text.strip()) and repeats_name(text, name)
            for name, text in described[["tool", "description"]].iter_rows()
        ],
        dtype=pl.Boolean,
    )
    yield from run_checks(
        described.hstack([repeats.alias("repeats")]),
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
    for server, *tool in described[["server", "tool", "definition", "description"]].iter_rows():
        tools.setdefault(server, []).append((tool[0], tool[1], tool[2]))
    pairs = pl.DataFrame(
        [(server, *pair) for server, listed in tools.items() for pair in _contained(listed)],
        schema=dict.fromkeys(("server", "definition", "other"), pl.String),
        orient="row",
    )
    if not pairs.height:
        return
    yield make_findings(
        "definition.overlap",
        described.join(pairs, on=["server", "definition"], nulls_equal=True, maintain_order="left"),
        formatted("the description of {} has all words of this one", "other"),
        evidence="description",
        path="/description",
    )


def _contained(tools: Iterable[tuple[str, str, str | None]]) -> Iterator[tuple[str, str]]:
    """Find tools whose description contains only words from another tool's description.

    Args:
        tools: name, definition and description of each tool of one server.

    Yields:
        The definition of such a tool, and the name of the other tool.
    """
    words: dict[str, tuple[str, frozenset[str]]] = {}
    for tool, definition, description in tools:
        words[tool] = definition, frozenset(words_of(description or "")) - FILLING_WORDS
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
    """Check how well the input schema and the tool's description document each argument."""
    text = Arguments.text.col
    string = Arguments.kinds.col.list.contains("string") & (Arguments.kinds.col.list.len() == 1)
    number = (Arguments.kinds.col.list.set_difference(["integer", "number"]).list.len() == 0) & (
        Arguments.kinds.col.list.len() > 0
    )
    free = ~Arguments.bounded.col
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
            ~Arguments.described.col,
            formatted("no description of {}", "name"),
            path="pointer",
        ),
        Check(
            "definition.parameter_repeats_name",
            Arguments.repeats_name.col,
            formatted("the description of {} says no more than its name", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.format_undocumented",
            string & free & matches(Arguments.words.col, names) & ~matches(text, formats),
            formatted("{} is text without a stated format", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.limits_unstated",
            number & free & ~matches(text, limits),
            formatted("{} is a number without stated limits", "name"),
            evidence="text",
            path="pointer",
        ),
        Check(
            "definition.default_unstated",
            ~Arguments.required.col & ~Arguments.defaulted.col & ~matches(text, defaults),
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
            ~Arguments.required.col & matches(text, required),
            formatted("{} is optional in the schema and required in its description", "name"),
            evidence="text",
            path="pointer",
        ),
    )


def _check_examples(places: pl.DataFrame, definitions: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Find examples and defaults in an input schema that the schema itself rejects."""
    rows = [
        (definition, pointer, f"{key} of {name}: {message}", value)
        for definition, text in definitions[["definition", "input_schema"]].iter_rows()
        if text is not None and ('"default"' in text or '"example' in text)
        for name, key, pointer, message, value in _invalid_examples(text)
    ]
    if not rows:
        return
    names = ("definition", "pointer", "words", "value")
    found = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    yield make_findings(
        "definition.example_invalid",
        places.join(found, on="definition", maintain_order="left_right"),
        Arguments.words.col,
        evidence="value",
        path="pointer",
    )


def _invalid_examples(text: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield each invalid example or default of an argument in an input schema.

    Each is a tuple of the argument's name, the keyword, a JSON Pointer, a message and the value.
    """
    schema = parsed_schema(text)
    if schema is None:
        return
    shared = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    referring = 0
    for name, member in properties_of(schema).items():
        values = [("default", member["default"])] if "default" in member else []
        values += [("example", value) for value in list_of(member.get("examples"))]
        values += [("example", member["example"])] if "example" in member else []
        if not values:
            continue
        text = msgspec.json.encode(member).decode()
        if '"$ref"' in text:
            # Limit the number of arguments with references, because each is compiled together with
            # all shared definitions.
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
                shown = msgspec.json.encode(value).decode()
                yield name, key, pointer_to(name), message or "", shown
                break


_AROUND: Final = r"[^\n]{0,80}"
"""Part of a pattern that also matches the text around what the pattern is about."""


def check_required_in_practice(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Find optional arguments without which a server refuses calls."""
    (missing,) = finding_rule("definition.optional_required").matches
    refused = (
        select_for_findings(
            calls, "verdict", "input_schema_state", "error_text", "arguments", "ts_ns"
        )
        .lazy()
        .filter(
            Scored.verdict.col == "business",
            Scored.input_schema_state.col == "valid",
            Arguments.definition.col.is_not_null(),
        )
        .pipe(run_query)
    )
    if not refused.height:
        return concat_findings([])
    # Match each distinct text only once.
    texts = refused.lazy().select(Scored.error_text.col.unique())
    # Leave the surrounding text out of the pattern: compiling it for 160 characters takes as long
    # as the search.
    texts = texts.filter(Scored.error_text.col.str.contains(missing.replace(_AROUND, "")))
    refused = (
        refused.lazy()
        .join(texts, on="error_text", how="semi", maintain_order="left")
        .pipe(run_query)
    )
    if not refused.height:
        return concat_findings([])
    used = definitions.join(refused.select("definition").unique(), on="definition", how="semi")
    optional = arguments_of(used.unique("definition")).filter(~Arguments.required.col)
    said = (
        Scored.error_text.col.str.extract(f"({missing})", 1)
        .str.replace_all(r"([a-z0-9])([A-Z])", "${1} ${2}")
        .str.to_lowercase()
        .str.replace_all(r"[^\p{L}\p{N}]+", " ")
    )
    name = pl.concat_str(pl.lit('"'), "name", pl.lit('":'))
    found = (
        refused.lazy()
        .with_columns(said=pl.concat_str(pl.lit(" "), said, pl.lit(" ")))
        .join(optional.lazy().select("definition", "name", "words", "pointer"), on="definition")
        .filter(
            pl.col("said").str.contains(
                pl.concat_str(pl.lit(" "), "words", pl.lit(" ")), literal=True
            ),
            ~Scored.arguments.col.fill_null("").str.contains(name, literal=True),
        )
        .sort("ts_ns", "seq", "pointer")
        .with_columns(times=pl.len().over("recording", "definition", "pointer"))
        .unique(["recording", "definition", "pointer"], keep="first", maintain_order=True)
    )
    return make_findings(
        "definition.optional_required",
        found,
        formatted("{} is optional, but {} calls without it were refused", "name", "times"),
        evidence=Scored.error_text.col,
        path="pointer",
    )
