"""Checks tool definitions: their shape, schemas, names, annotations and hidden text.

Each version of a definition is checked once per server in the whole archive. Findings refer to the
server's first listing of that version.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.jsonschemas.definition_diff import diff_definitions
from mcptally.jsonschemas.dialects import (
    UnusableSchemaError,
    dialect_of,
    external_references,
    metaschema_errors,
    parse_schema,
)
from mcptally.jsonschemas.validate import member_message
from mcptally.jsonschemas.validators import compile_validator
from mcptally.protocol.definition_smells import find_smells
from mcptally.protocol.message_schemas import ShapeResult, Shapes, check_shape
from mcptally.protocol.revisions import table
from mcptally.rules.findings import (
    REVISIONS,
    Check,
    concat_findings,
    finding_rule,
    make_findings,
    run_checks,
    select_for_findings,
)
from mcptally.tables.arrow import matches
from mcptally.tables.declaration import Column
from mcptally.tables.findings import Findings
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Definitions, Listings, Scored

LINT_RULES: Final = "definition."
"""Prefix of the ids of the rules that `lint_definitions` checks on one server's definitions."""

_NAME: Final = r"^[A-Za-z0-9_.-]{1,128}$"

_Defect = tuple[str, str, str | None, str | None]
"""A defect of a definition: rule id, message, JSON Pointer, and evidence."""


def lint_definitions(listed: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Return the findings about the definitions that servers list.

    Args:
        listed: `Listings` of the whole archive.
        definitions: `Definitions` of the whole archive.
    """
    if not listed.height:
        return Findings.empty()
    places = (
        listed.lazy()
        .sort("listed_ns", "recording", "seq")
        .unique(["server", "definition"], keep="first", maintain_order=True)
        .pipe(run_query)
    )
    known = definitions.unique("definition", maintain_order=True)
    described = (
        places.lazy()
        .join(known.lazy().drop("tool"), on="definition", maintain_order="left")
        .pipe(run_query)
    )
    parts = [
        *_check_texts(described),
        *_check_schemas(places, known),
        *_check_shapes(described),
        find_smells(places, known, described),
        *_check_listings(listed, dict(known[["definition", "text"]].iter_rows())),
    ]
    return concat_findings(parts)


def _check_texts(described: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Check descriptions, names, annotations and definition texts, column by column."""
    hints = Definitions.annotations.col.fill_null("")
    reads = hints.str.contains('"readOnlyHint":true', literal=True)
    harmless = hints.str.contains('"destructiveHint":false', literal=True)
    name = Definitions.tool.col.str.replace_all(
        r"([a-z0-9])([A-Z])", "${1}_${2}"
    ).str.to_lowercase()
    writing, deleting = finding_rule("definition.hint_against_name").matches
    text = Definitions.text.col
    (invisible,) = finding_rule("definition.invisible_characters").matches
    # Tag characters that follow U+1F3F4 and encode a flag are legitimate.
    without_flags = text.str.replace_all("\U0001f3f4[\U000e0061-\U000e007a]+\U000e007f", "")
    yield from run_checks(
        described,
        Check(
            "definition.description_missing",
            Definitions.description.col.fill_null("").str.strip_chars() == "",
            "no description",
            path="/description",
        ),
        Check(
            "definition.name_illegal",
            ~Definitions.tool.col.str.contains(_NAME),
            "the name must have 1 to 128 characters of A-Z a-z 0-9 _ . -",
            evidence="tool",
            path="/name",
        ),
        Check(
            "definition.hints_contradict",
            reads & hints.str.contains('"destructiveHint":true', literal=True),
            "readOnlyHint and destructiveHint are both true",
            evidence="annotations",
            path="/annotations",
        ),
        Check(
            "definition.hint_against_name",
            (reads & matches(name, writing)) | (harmless & matches(name, deleting)),
            "the name says that the tool changes something, the annotations say that it does not",
            evidence="annotations",
            path="/annotations",
        ),
        *(
            Check(
                "definition.hidden_instruction",
                matches(text, pattern),
                "the definition tells the model to act without the user's knowledge",
                evidence=text.str.extract(f"(.{{0,60}}(?:{pattern}).{{0,100}})"),
            )
            for pattern in finding_rule("definition.hidden_instruction").matches
        ),
    )
    suspects = described.filter(without_flags.str.contains(invisible))
    if suspects.height:
        part = without_flags.str.extract(f"(.{{0,40}}(?:{invisible}).{{0,40}})")
        yield make_findings(
            "definition.invisible_characters",
            suspects,
            formatted("{} invisible characters", without_flags.str.count_matches(invisible)),
            evidence=part.map_elements(
                lambda text: text.encode("unicode_escape").decode(), return_dtype=pl.String
            ),
        )


def _check_schemas(places: pl.DataFrame, definitions: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Check the input and output schemas of all definitions; examine each distinct schema once."""
    schemas: dict[str, list[_Defect]] = {}
    rows: list[tuple[str | None, ...]] = []
    for key, input_schema, output_schema in definitions[
        ["definition", "input_schema", "output_schema"]
    ].iter_rows():
        for name, text in (("inputSchema", input_schema), ("outputSchema", output_schema)):
            if text is None:
                continue
            if text not in schemas:
                schemas[text] = list(_schema_defects(text))
            rows += [
                (key, rule, f"{name}: {message}", f"/{name}{path}", evidence)
                for rule, message, path, evidence in schemas[text]
            ]
        if input_schema is not None:
            rows += [(key, *defect) for defect in _parameter_defects(input_schema)]
    if not rows:
        return
    names = ("definition", "defect", "words", "pointer", "value")
    defects = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    located = places.join(defects, on="definition", maintain_order="left")
    for (rule,), group in located.group_by("defect", maintain_order=True):
        yield make_findings(str(rule), group, pl.col("words"), path="pointer", evidence="value")


def _schema_defects(text: str) -> Iterator[_Defect]:
    """Yield the defects of one schema."""
    try:
        schema = parse_schema(text)
    except UnusableSchemaError as error:
        yield "definition.schema_unusable", str(error), "", None
        return
    try:
        dialect_of(schema)
    except UnusableSchemaError as error:
        yield "definition.dialect_unknown", str(error), "/$schema", None
        return
    broken = False
    if "$ref" in text or "Ref" in text:
        for path, target in external_references(schema):
            broken = True
            yield "definition.schema_outside", "the reference leaves the schema", path, target
    for path, words in metaschema_errors(schema):
        broken = True
        yield "definition.schema_invalid", words, path, None
    reason = compile_validator(text)
    if isinstance(reason, str) and not broken:
        yield "definition.schema_unusable", reason, "", None


def _parameter_defects(text: str) -> Iterator[_Defect]:
    """Yield the defects in how an input schema declares the tool's parameters."""
    schema: Any = msgspec.json.decode(text)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    required = schema.get("required")
    names = (
        [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    )
    undeclared = [name for name in names if name not in properties]
    if undeclared and not any(
        key in schema for key in ("patternProperties", "allOf", "anyOf", "oneOf")
    ):
        message = f"required but not declared: {', '.join(undeclared[:10])}"
        yield "definition.required_undeclared", message, "/inputSchema/required", None


def _check_shapes(described: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Check definitions against the schema of the revision in force when they were listed."""
    rows = described.filter(Listings.revision.col.is_in(REVISIONS))
    results: dict[tuple[str, str], ShapeResult] = {}
    keys: list[tuple[str, str]] = rows[["revision", "text"]].rows()
    for revision, text in keys:
        if (revision, text) not in results:
            results[revision, text] = check_shape("definitions", "tool", revision, text)
    known = [results[key] for key in keys]
    rows = rows.hstack(pl.DataFrame(known, schema=Shapes.schema(), orient="row"))
    message = member_message(Shapes.pointer, Shapes.words, pl.lit("the definition"))
    yield from run_checks(
        rows,
        *(
            Check(rule, Shapes.state.col == state, message, path="pointer")
            for state, rule in (("invalid", "definition.shape"), ("null", "definition.null_member"))
        ),
    )
    spans = table()["tool_members"]
    suspected = rows.select(
        (
            Listings.revision.col.is_in(REVISIONS[: REVISIONS.index(span.since)])
            & Definitions.text.col.str.contains(f'"{span.name}":', literal=True)
        ).alias(span.name)
        for span in spans
    )
    for span in spans:
        if not suspected[span.name].any():
            continue
        has = Definitions.text.col.str.json_path_match(f"$.{span.name}").is_not_null()
        yield make_findings(
            "definition.too_new",
            rows.lazy().filter(suspected[span.name]).filter(has),
            formatted(
                "{} was added in {}; the session uses {}",
                pl.lit(span.name),
                pl.lit(span.since),
                "revision",
            ),
            path=f"/{span.name}",
        )


class _ListedNames(Listings):
    """One row per tool name in a listing."""

    times = Column(pl.UInt32, "Tools of the listing with this name.")
    before = Column(pl.String, "Definition in the listing before.")


def _check_listings(listed: pl.DataFrame, texts: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Find duplicate names in a listing, and definitions that change within a session.

    Args:
        listed: `Listings` of the whole archive.
        texts: maps the hash of each definition to its JSON text.
    """
    listing = ["recording", "session", "pos"]
    names = (
        listed.lazy()
        .group_by(*listing, "tool", maintain_order=True)
        .agg(
            pl.len().alias("times"),
            pl.col(
                "server", "definition", "revision", "file", "line", "seq", "index", "listed_ns"
            ).first(),
        )
    )
    duplicates = names.filter(_ListedNames.times.col > 1)
    yield make_findings(
        "definition.name_duplicate",
        duplicates.unique(["server", "tool"], keep="first", maintain_order=True),
        formatted("{} tools of one listing have this name", "times"),
        evidence="tool",
        path="/name",
    )
    changes = (
        listed.lazy()
        .select(*listing, "tool", "announced")
        .unique([*listing, "tool"], keep="first")
        .join(names, on=[*listing, "tool"])
        .filter(_ListedNames.times.col == 1)
        .sort("recording", "session", "tool", "pos")
        .with_columns(before=Definitions.definition.col.shift().over("session", "tool"))
        .filter(
            _ListedNames.before.col.is_not_null(),
            _ListedNames.before.col != Definitions.definition.col,
        )
        .pipe(run_query)
    )
    if not changes.height:
        return
    differences = [
        "; ".join(what for what, _ in diff_definitions(texts[before], texts[after]))
        for before, after in changes[
            [_ListedNames.before.name, _ListedNames.definition.name]
        ].iter_rows()
    ]
    announced = pl.when("announced").then(pl.lit("announced")).otherwise(pl.lit("not announced"))
    yield make_findings(
        "definition.changed_in_session",
        changes.with_columns(differences=pl.Series(differences, dtype=pl.String)),
        formatted("the tool changed within a session ({}): {}", announced, "differences"),
    )


def check_read_only_hints(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Find tools with `readOnlyHint` whose results report that something was changed."""
    hints = Definitions.annotations.col.fill_null("")
    readers = definitions.lazy().filter(hints.str.contains('"readOnlyHint":true', literal=True))
    begin = Definitions.text.col.str.head(300)
    patterns = finding_rule("definition.hint_against_behaviour").matches
    reports_change = pl.any_horizontal(matches(begin, pattern) for pattern in patterns)
    first = (
        select_for_findings(calls, "outcome", "text", "ts_ns")
        .lazy()
        .filter(Scored.outcome.col == "ok", Definitions.definition.col.is_not_null())
        .join(
            readers.select("definition").unique(),
            on="definition",
            how="semi",
            maintain_order="left",
        )
        .filter(reports_change)
        .sort("ts_ns")
        .with_columns(times=pl.len().over("recording", "definition"))
        .unique(["recording", "definition"], keep="first", maintain_order=True)
    )
    return make_findings(
        "definition.hint_against_behaviour",
        first,
        formatted("readOnlyHint is true, but {} results report a change", "times"),
        evidence=begin,
    )
