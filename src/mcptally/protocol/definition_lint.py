"""What is wrong with tool definitions: shape, schemas, names, hints, and what hides in them.

Each version of a definition is judged once a server, with the knowledge of the whole archive;
a finding stands where the version was listed first.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.jsonschemas.definition_diff import compare
from mcptally.jsonschemas.dialects import (
    UnusableError,
    dialect,
    meta_errors,
    outside_references,
    read,
)
from mcptally.jsonschemas.validators import judge_of, judge_value
from mcptally.protocol.message_schemas import judge
from mcptally.protocol.revisions import table
from mcptally.rules.findings import REVISIONS, findings_of, rule_of, together
from mcptally.tables.formatting import formatted

_NAME: Final = r"^[A-Za-z0-9_.-]{1,128}$"

Defect = tuple[str, str, str, str | None, str | None]
"""Definition, rule, message, path, evidence."""


def find(listed: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Findings about definitions: `LISTING` and `DEFINITION` rows of the whole archive."""
    places = listed.sort("listed_ns", "recording", "seq").unique(
        ["server", "definition"], keep="first", maintain_order=True
    )
    known = definitions.unique("definition", maintain_order=True)
    described = places.join(known.drop("tool"), on="definition", maintain_order="left")
    parts = [
        *_by_columns(described),
        *_by_value(places, known),
        *_by_revision(described),
        *_by_listing(listed, dict(known.select("definition", "text").iter_rows())),
    ]
    return together(parts)


def _by_columns(described: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """What the columns of a definition say."""
    yield findings_of(
        "definition.description_missing",
        described.filter(pl.col("description").fill_null("").str.strip_chars() == ""),
        "no description",
        path="/description",
    )
    yield findings_of(
        "definition.name_illegal",
        described.filter(~pl.col("tool").str.contains(_NAME)),
        "the name is not 1 to 128 of A-Z a-z 0-9 _ . -",
        evidence="tool",
        path="/name",
    )
    hints = pl.col("annotations").fill_null("")
    reads = hints.str.contains('"readOnlyHint":true', literal=True)
    yield findings_of(
        "definition.hints_contradict",
        described.filter(reads, hints.str.contains('"destructiveHint":true', literal=True)),
        "readOnlyHint and destructiveHint are both true",
        evidence="annotations",
        path="/annotations",
    )
    name = pl.col("tool").str.replace_all(r"([a-z0-9])([A-Z])", "${1}_${2}").str.to_lowercase()
    writing, deleting = rule_of("definition.hint_against_name").matches
    harmless = hints.str.contains('"destructiveHint":false', literal=True)
    yield findings_of(
        "definition.hint_against_name",
        described.filter(
            (reads & name.str.contains(writing)) | (harmless & name.str.contains(deleting))
        ),
        "by its name the tool changes something, by its annotations it does not",
        evidence="annotations",
        path="/annotations",
    )
    text = pl.col("text")
    for pattern in rule_of("definition.hidden_instruction").matches:
        yield findings_of(
            "definition.hidden_instruction",
            described.filter(text.str.contains(pattern)),
            "the definition speaks to the model behind the user's back",
            evidence=text.str.extract(f"(.{{0,60}}(?:{pattern}).{{0,100}})"),
        )
    (invisible,) = rule_of("definition.invisible_characters").matches
    # The tags that spell a flag after U+1F3F4 are what tags are for.
    unflagged = text.str.replace_all("\U0001f3f4[\U000e0061-\U000e007a]+\U000e007f", "")
    yield findings_of(
        "definition.invisible_characters",
        described.filter(unflagged.str.contains(invisible)),
        formatted("{} characters that nobody sees", unflagged.str.count_matches(invisible)),
        evidence=unflagged.str.extract(f"(.{{0,40}}(?:{invisible}).{{0,40}})").map_elements(
            lambda words: words.encode("unicode_escape").decode(), return_dtype=pl.String
        ),
    )


def _by_value(places: pl.DataFrame, definitions: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """What takes a look into each definition, at each once."""
    schemas: dict[str, list[tuple[str, str, str, str | None]]] = {}
    rows: list[Defect] = []
    for key, input_schema, output_schema in definitions.select(
        "definition", "input_schema", "output_schema"
    ).iter_rows():
        for name, text in (("inputSchema", input_schema), ("outputSchema", output_schema)):
            if text is None:
                continue
            if text not in schemas:
                schemas[text] = list(_schema(text))
            rows += [
                (key, rule, f"{name}: {message}", f"/{name}{path}", evidence)
                for rule, message, path, evidence in schemas[text]
            ]
        if input_schema is not None:
            rows += [(key, *defect) for defect in _arguments(input_schema)]
    names = ("definition", "defect", "words", "place", "shown")
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    located = places.join(frame, on="definition", maintain_order="left")
    for (rule,), group in located.group_by("defect", maintain_order=True):
        yield findings_of(str(rule), group, pl.col("words"), path="place", evidence="shown")


def _schema(text: str) -> Iterator[tuple[str, str, str, str | None]]:
    """What is wrong with one schema: rule, message, path, evidence."""
    try:
        schema = read(text)
    except UnusableError as error:
        yield "definition.schema_unusable", str(error), "", None
        return
    try:
        dialect(schema)
    except UnusableError as error:
        yield "definition.dialect_unknown", str(error), "/$schema", None
        return
    broken = False
    if "$ref" in text or "Ref" in text:
        for path, target in outside_references(schema):
            broken = True
            yield "definition.schema_outside", "a reference out of the schema", path, target
    for path, words in meta_errors(schema):
        broken = True
        yield "definition.schema_invalid", words, path, None
    judged = judge_of(text)
    if isinstance(judged, str) and not broken:
        yield "definition.schema_unusable", judged, "", None


def _arguments(text: str) -> Iterator[tuple[str, str, str | None, str | None]]:
    """What is wrong with how arguments are described."""
    schema: Any = msgspec.json.decode(text)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    required = schema.get("required")
    asked = [n for n in required if isinstance(n, str)] if isinstance(required, list) else []
    lost = [n for n in asked if n not in properties]
    if lost and not any(key in schema for key in ("patternProperties", "allOf", "anyOf", "oneOf")):
        names = ", ".join(lost[:10])
        path = "/inputSchema/required"
        yield "definition.required_undeclared", f"required and not described: {names}", path, None
    bare = [
        name
        for name, member in properties.items()
        if isinstance(member, dict) and not (member.get("description") or "$ref" in member)
    ]
    if bare:
        names = ", ".join(bare[:10]) + (", …" if len(bare) > 10 else "")
        path = "/inputSchema/properties"
        yield "definition.parameter_undescribed", f"no description of {names}", path, None


def _by_revision(described: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """What depends on the revision that the tool was listed in."""
    rows = described.filter(pl.col("revision").is_in(REVISIONS))
    said: dict[tuple[str, str], tuple[str, str | None, str | None]] = {}
    for revision, text in rows.select("revision", "text").unique().iter_rows():
        strict = judge("definitions", "tool", revision)
        lenient = judge("definitions", "tool", revision, nulls=True)
        if strict is None or lenient is None:
            continue
        state, words, path = judge_value(strict, text)
        if state == "invalid" and judge_value(lenient, text)[0] == "valid":
            state = "null"
        said[revision, text] = (state, words, path)
    judged = [
        said.get(key, ("valid", None, None)) for key in rows.select("revision", "text").rows()
    ]
    schema = dict.fromkeys(("state", "words", "place"), pl.String)
    rows = pl.concat([rows, pl.DataFrame(judged, schema=schema, orient="row")], how="horizontal")
    member = pl.col("place").str.extract(r"([^/]*)$")
    message = (
        pl.when(pl.col("place") == "")
        .then(formatted("the definition {}", "words"))
        .otherwise(formatted("{} {}", member, "words"))
    )
    for state, rule in (("invalid", "definition.shape"), ("null", "definition.null_member")):
        yield findings_of(rule, rows.filter(pl.col("state") == state), message, path="place")
    for span in table()["tool_members"]:
        early = [r for r in REVISIONS if REVISIONS.index(r) < REVISIONS.index(span.since)]
        has = pl.col("text").str.json_path_match(f"$.{span.name}").is_not_null()
        suspects = rows.filter(
            pl.col("revision").is_in(early),
            pl.col("text").str.contains(f'"{span.name}":', literal=True),
        )
        yield findings_of(
            "definition.too_new",
            suspects.filter(has),
            formatted(
                "{} came with {}; {} is in force", pl.lit(span.name), pl.lit(span.since), "revision"
            ),
            path=f"/{span.name}",
        )


def _by_listing(listed: pl.DataFrame, texts: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Names twice in one listing, and tools that change between two listings of a session."""
    one = ["recording", "session", "pos"]
    names = listed.group_by(*one, "tool", maintain_order=True).agg(
        pl.len().alias("times"),
        pl.col(
            "server", "definition", "revision", "file", "line", "seq", "index", "listed_ns"
        ).first(),
    )
    twice = names.filter(pl.col("times") > 1)
    yield findings_of(
        "definition.name_duplicate",
        twice.unique(["server", "tool"], keep="first", maintain_order=True),
        formatted("{} tools of one listing have this name", "times"),
        evidence="tool",
        path="/name",
    )
    order = names.with_columns(announced=pl.lit(value=False)).drop("announced")
    changes = (
        listed.select(*one, "tool", "announced")
        .unique([*one, "tool"], keep="first")
        .join(order, on=[*one, "tool"])
        .filter(pl.col("times") == 1)
        .sort("recording", "session", "tool", "pos")
        .with_columns(before=pl.col("definition").shift().over("session", "tool"))
        .filter(pl.col("before").is_not_null(), pl.col("before") != pl.col("definition"))
    )
    if not changes.height:
        return
    words = [
        "; ".join(what for what, _ in compare(texts[before], texts[after]))
        for before, after in changes.select("before", "definition").iter_rows()
    ]
    said = pl.when("announced").then(pl.lit("announced")).otherwise(pl.lit("not announced"))
    yield findings_of(
        "definition.changed_in_session",
        changes.with_columns(what=pl.Series(words, dtype=pl.String)),
        formatted("the tool changed within a session ({}): {}", said, "what"),
    )


def find_behaviour(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Findings about tools that say they only read, from what their results say."""
    hints = pl.col("annotations").fill_null("")
    readers = definitions.filter(hints.str.contains('"readOnlyHint":true', literal=True))
    if not readers.height:
        return together([])
    rows = calls.filter(pl.col("outcome") == "ok", pl.col("definition").is_not_null()).join(
        readers.select("definition").unique(), on="definition", how="semi", maintain_order="left"
    )
    begin = pl.col("text").str.head(300)
    patterns = rule_of("definition.hint_against_behaviour").matches
    says = pl.any_horizontal(begin.str.contains(pattern) for pattern in patterns)
    first = (
        rows.filter(says)
        .sort("ts_ns")
        .with_columns(times=pl.len().over("recording", "definition"))
        .unique(["recording", "definition"], keep="first", maintain_order=True)
    )
    return findings_of(
        "definition.hint_against_behaviour",
        first,
        formatted("readOnlyHint is true, and {} results say that something was changed", "times"),
        evidence=begin,
    )
