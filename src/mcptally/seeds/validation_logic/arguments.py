"""Unwraps arguments that are nested inside another object or a JSON string.

The wrappers are the `params` of a JSON-RPC request, and `arguments`, `args`, `parameters` and
`input`.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Scored
from mcptally.wire.json_text import json_object, json_value

WRAPPERS: Final = ("params", "arguments", "args", "parameters", "input")
"""Names of members that may wrap the arguments, in the order in which they are tried."""

MAX_LAYERS: Final = 8
"""Maximum number of nested wrappers that are removed."""


class Unwrapped(NamedTuple):
    """Arguments without their wrappers."""

    arguments: dict[str, Any]
    layers: tuple[str, ...]
    """Names of the removed wrappers, outermost first."""


def unwrapped(payload: Any, declared: Collection[str] = ()) -> Unwrapped:
    """Return the arguments in a payload, without wrappers and without `_meta`.

    Args:
        payload: an object, or a JSON string that contains one.
        declared: names of the tool's parameters; members with these names are not wrappers.
    """
    layers: list[str] = []
    value = payload
    while len(layers) < MAX_LAYERS:
        if isinstance(value, str):
            inner = json_object(value)
            if inner is None:
                break
            value = inner
            layers.append("JSON text")
            continue
        if not isinstance(value, dict):
            break
        name = _wrapper(value, declared)
        if name is None:
            break
        value = value[name]
        layers.append(name)
    arguments = value if isinstance(value, dict) else {}
    if "_meta" in arguments and "_meta" not in declared:
        arguments = {name: item for name, item in arguments.items() if name != "_meta"}
    return Unwrapped(arguments, tuple(layers))


def _wrapper(value: Mapping[str, Any], declared: Collection[str]) -> str | None:
    """Return the name of the member that wraps the arguments as an object or JSON text, or None."""
    for name in WRAPPERS:
        inner = value.get(name)
        if inner is None or name in declared:
            continue
        return name if isinstance(inner, dict) or json_object(inner) is not None else None
    return None


HEAD: Final = 300
"""Number of characters at the start of the arguments that are searched for a wrapper."""

_WRAPPED: Final = rf'^\s*"|"(?:{"|".join(WRAPPERS)})"\s*:\s*(?:\{{|"\s*\{{)'


def wrapped_findings(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Return a finding for each tool call whose arguments are wrapped."""
    calls = rule_findings.select_for_findings(calls, "arguments")
    # Search only the beginning, because further on the same name belongs to an argument.
    wrapped = Scored.arguments.col.str.head(HEAD).str.contains(_WRAPPED)
    rows = (
        calls.lazy()
        .filter(Scored.tool.col.is_not_null(), wrapped)
        .join(
            definitions.lazy().select("definition", "input_schema").unique("definition"),
            on="definition",
            how="left",
            maintain_order="left",
        )
        .pipe(run_query)
    )
    layers = [
        " in ".join(reversed(_layers(arguments, schema)))
        for arguments, schema in rows.select("arguments", "input_schema").iter_rows()
    ]
    with_layers = rows.lazy().with_columns(layers=pl.Series(layers, dtype=pl.String))
    message = formatted("the arguments are wrapped: {}", "layers")
    return rule_findings.make_findings(
        "arguments.wrapped",
        with_layers.filter(pl.col("layers") != ""),
        message,
        path="/arguments",
        evidence="arguments",
    )


def _layers(arguments: str, schema: str | None) -> tuple[str, ...]:
    payload, declared = json_value(arguments), json_value(schema)
    properties = declared.get("properties") if isinstance(declared, dict) else None
    names = properties if isinstance(properties, dict) else {}
    if isinstance(payload, dict) and not names and len(payload.keys() - {*_ENVELOPE}) > 1:
        return ()  # without declared parameters, any of several members may be an argument
    return unwrapped(payload, names).layers


_ENVELOPE: Final = ("jsonrpc", "id", "method", "name", "tool", "_meta")
