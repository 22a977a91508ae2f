"""Compares two versions of a tool definition, and classifies each change by its effect on callers.

A change to `inputSchema` is breaking if the new schema requires more or allows less. A change to
`outputSchema` is breaking if the new schema guarantees less. A change that may or may not be
breaking is `unclear`.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.jsonschemas.dialects import UnusableSchemaError, dialect_of
from mcptally.tables.queries import run_query
from mcptally.tables.tools import Tools

CLASSES: Final = ("hints", "wording", "compatible", "unclear", "breaking")
"""Classes of changes, from harmless to breaking."""

Change = tuple[str, str]
"""A description of a change (`place: how`), and the change's class."""

_WORDING: Final = frozenset({"description", "title"})
_HINTS: Final = frozenset({"annotations", "icons", "_meta", "execution"})
_NO_CONDITION: Final = frozenset(
    {*_WORDING, "$comment", "default", "examples", "deprecated", "$schema", "readOnly", "writeOnly"}
)
_CONDITIONS: Final = frozenset(
    {"type", "enum", "const", "multipleOf", "pattern", "format", "required", "properties"}
    | {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "uniqueItems"}
    | {"minContains", "maxContains", "additionalProperties", "unevaluatedProperties"}
    | {"patternProperties", "propertyNames", "dependencies", "dependentRequired"}
    | {"dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"}
    | {"$ref", "$dynamicRef", "$recursiveRef"}
)
"""Keywords, other than lower and upper bounds, that restrict the allowed values."""

_NO_EFFECT: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("items", "additionalItems", "unevaluatedItems"), (True, {})),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "propertyNames"), (True, {})),
    **dict.fromkeys(("minLength", "minItems", "minProperties"), (0,)),
    **dict.fromkeys(("properties", "patternProperties", "dependencies"), ({},)),
    "uniqueItems": (False,),
}
"""Maps keywords to the values with which they restrict nothing."""

_LOWER: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


def diff_definitions(old: str, new: str) -> list[Change]:
    """Return the changes between two definitions, given as JSON texts, sorted by place.

    The schemas may be invalid, because servers list invalid schemas too.
    """
    before, after = msgspec.json.decode(old), msgspec.json.decode(new)
    return sorted(_tool(before, after))


def worst_class(changes: list[Change]) -> str:
    """Return the worst class among the changes, or `wording` if there are no changes."""
    return max((kind for _, kind in changes), key=CLASSES.index, default="wording")


def _tool(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if key in {"inputSchema", "outputSchema"}:
            if before is None or after is None:
                gone = key == "outputSchema" and after is None
                yield f"{key}: {_how(before, after)}", "breaking" if gone else "compatible"
            else:
                yield from _schema(before, after, key, answers=key == "outputSchema")
        else:
            kind = "wording" if key in _WORDING else "hints" if key in _HINTS else "unclear"
            yield f"{key}: {_how(before, after)}", kind


def _how(before: Any, after: Any) -> str:
    return "added" if before is None else "removed" if after is None else "changed"


def _schema(old: Any, new: Any, at: str, *, answers: bool) -> Iterator[Change]:
    """Yield the changes between two versions of a schema; `answers` means an `outputSchema`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        yield f"{at}: changed", "unclear"
        return
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before == after and (key in old) == (key in new):
            continue
        place = f"{at}/{key}"
        if key.startswith("x-"):
            yield f"{place}: {_how(before, after)}", "hints"
        elif key in _NO_CONDITION:
            yield f"{place}: {_how(before, after)}", "wording"
        elif key == "properties" and _are_objects(before, after):
            yield from _properties(before or {}, after or {}, new, place, answers=answers)
        elif key == "required":
            yield from _required(before or [], after or [], place, answers=answers)
        elif key in {"items", "additionalProperties"} and _both_objects(before, after):
            yield from _schema(before, after, place, answers=answers)
        elif key in {"$defs", "definitions"} and _are_objects(before, after):
            earlier, later = before or {}, after or {}
            for name in earlier.keys() & later.keys():
                if earlier[name] != later[name]:
                    inner = f"{place}/{name}"
                    yield from _schema(earlier[name], later[name], inner, answers=answers)
        else:
            yield f"{place}: {_how(before, after)}", _condition(key, before, after, answers=answers)


def _are_objects(before: Any, after: Any) -> bool:
    return all(v is None or isinstance(v, dict) for v in (before, after))


def _both_objects(before: Any, after: Any) -> bool:
    return isinstance(before, dict) and isinstance(after, dict)


def _properties(
    old: dict[str, Any], new: dict[str, Any], schema: dict[str, Any], at: str, *, answers: bool
) -> Iterator[Change]:
    required = schema.get("required")
    if not isinstance(required, list):
        required = ()  # before draft 4, `required` was a boolean in each property
    for name in old.keys() | new.keys():
        place = f"{at}/{name}"
        if name not in new:
            yield f"{place}: removed", "breaking"
        elif name not in old:
            asks = not answers and name in required
            yield f"{place}: added", "breaking" if asks else "compatible"
        elif old[name] != new[name]:
            yield from _schema(old[name], new[name], place, answers=answers)


def _required(old: Any, new: Any, at: str, *, answers: bool) -> Iterator[Change]:
    if not (isinstance(old, list) and isinstance(new, list)):
        yield f"{at}: changed", "unclear"
        return
    earlier, later = {*map(str, old)}, {*map(str, new)}
    for name in sorted(earlier ^ later):
        more = name in later
        yield (
            f"{at}/{name}: {'added' if more else 'removed'}",
            "breaking" if more is not answers else "compatible",
        )


def _condition(key: str, before: Any, after: Any, *, answers: bool) -> str:
    """Classify a change to a keyword by whether the new schema allows more or fewer values."""
    before, after = (
        None if value in _NO_EFFECT.get(key, ()) else value for value in (before, after)
    )
    if before is after is None:
        return "compatible"
    wider: bool | None = None
    if key == "type" and all(v is None or isinstance(v, str | list) for v in (before, after)):
        wider = _wider(_types(before), _types(after))
    elif key == "enum" and all(v is None or isinstance(v, list) for v in (before, after)):
        wider = _wider(_reprs(before), _reprs(after))
    elif before is None or after is None:
        # We cannot know whether an unknown keyword restricts values.
        wider = after is None if key in _CONDITIONS | _LOWER | _UPPER else None
    elif key in _LOWER | _UPPER and all(isinstance(v, int | float) for v in (before, after)):
        wider = (after < before) is (key in _LOWER)
    elif key == "additionalProperties" and False in (before, after):
        wider = before is False
    if wider is None:
        return "unclear"
    return "compatible" if wider is not answers else "breaking"


def _reprs(values: Any) -> set[str] | None:
    return None if values is None else {*map(repr, values)}


def _types(value: str | list[Any] | None) -> set[str] | None:
    if value is None:
        return None
    names = {value} if isinstance(value, str) else {*map(str, value)}
    return names | {"integer"} if "number" in names else names


def _wider(before: set[str] | None, after: set[str] | None) -> bool | None:
    """Return whether a change allows more values, or None if that is unclear.

    Args:
        before: the values allowed before the change; None means that all values were allowed.
        after: the values allowed after the change.
    """
    if after is None or (before is not None and before <= after):
        return True
    if before is None or after <= before:
        return False
    return None


def add_drift(tools: pl.DataFrame, texts: dict[str, str]) -> pl.DataFrame:
    """Add `previous`, `drift`, `changed` and the dialects of the schemas to the `tools` table.

    Args:
        tools: the table.
        texts: maps the hash of each definition to its canonical JSON.
    """
    ordered = (
        tools.lazy()
        .sort(Tools.key)
        .with_columns(previous=Tools.definition.col.shift().over("server", "tool"))
        .pipe(run_query)
    )
    changes = [
        None if before is None else diff_definitions(texts[before], texts[after])
        for before, after in ordered.select("previous", "definition").iter_rows()
    ]
    return ordered.with_columns(
        drift=pl.Series([None if c is None else worst_class(c) for c in changes], dtype=pl.String),
        changed=pl.Series(
            [None if c is None else [what for what, _ in c] for c in changes],
            dtype=pl.List(pl.String),
        ),
        input_dialect=_dialects(ordered.get_column(Tools.input_schema.name)),
        output_dialect=_dialects(ordered.get_column(Tools.output_schema.name)),
    )


def _dialects(schemas: pl.Series) -> pl.Series:
    known: dict[str, str | None] = {}
    texts = schemas.to_list()
    for text in dict.fromkeys(texts):
        if text is None:
            continue
        try:
            known[text] = dialect_of(msgspec.json.decode(text))
        except (UnusableSchemaError, msgspec.DecodeError, RecursionError):
            known[text] = None
    return pl.Series([None if text is None else known[text] for text in texts], dtype=pl.String)
