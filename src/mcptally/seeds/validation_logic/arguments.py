"""What a caller gave: arguments without their wrappers, and the first member that is there.

A call's arguments may come wrapped: in a JSON-RPC envelope's `params`, in `arguments`, `args`,
`parameters` or `input`, as a JSON string. `unwrapped` gives the plain object that a tool should
see; a call whose arguments needed it is a finding.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.tables.formatting import formatted

WRAPPERS: Final = ("params", "arguments", "args", "parameters", "input")
"""Members that hold the arguments, in the order in which they are looked for."""

MAX_LAYERS: Final = 8
"""Wrappers around each other that are taken off."""


class Given(NamedTuple):
    """Arguments as a tool should see them, and what stood around them (outermost first)."""

    arguments: dict[str, Any]
    layers: tuple[str, ...]


def unwrapped(payload: Any, declared: Collection[str] = ()) -> Given:
    """The plain object of arguments in a payload.

    Args:
        payload: what came: an object, or a JSON string that holds one.
        declared: parameters of the tool; a member of such a name is an argument, no wrapper.
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
    return Given(arguments, tuple(layers))


def _wrapper(value: Mapping[str, Any], declared: Collection[str]) -> str | None:
    """The first member that holds the arguments: an object, or JSON text of one."""
    for name in WRAPPERS:
        inner = value.get(name)
        if inner is None or name in declared:
            continue
        return name if isinstance(inner, dict) or json_object(inner) is not None else None
    return None


def json_object(text: Any) -> dict[str, Any] | None:
    """The object that a text is the JSON of; None for any other text or value."""
    if not isinstance(text, str) or text.lstrip()[:1] != "{":
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def first_given(value: Mapping[str, Any], *names: str) -> Any:
    """The first member of these names that is there and not null."""
    return next((value[name] for name in names if value.get(name) is not None), None)


HEAD: Final = 300
"""Characters of the arguments in which a wrapper is looked for."""

_WRAPPED: Final = rf'^\s*"|"(?:{"|".join(WRAPPERS)})"\s*:\s*(?:\{{|"\s*\{{)'


def find(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Calls of tools whose arguments came wrapped."""
    # A wrapper stands at the beginning; what comes after long values is an argument's.
    wrapped = pl.col("arguments").str.head(HEAD).str.contains(_WRAPPED)
    rows = calls.filter(pl.col("tool").is_not_null(), wrapped).join(
        definitions.select("definition", "input_schema").unique("definition"),
        on="definition",
        how="left",
        maintain_order="left",
    )
    layers = [
        " in ".join(reversed(_layers(arguments, schema)))
        for arguments, schema in rows.select("arguments", "input_schema").iter_rows()
    ]
    rows = rows.with_columns(layers=pl.Series(layers, dtype=pl.String)).filter(
        pl.col("layers") != ""
    )
    words = formatted("the arguments came wrapped: {}", "layers")
    return rule_findings.findings_of(
        "arguments.wrapped", rows, words, path="/arguments", evidence="arguments"
    )


def _layers(arguments: str, schema: str | None) -> tuple[str, ...]:
    try:
        payload = msgspec.json.decode(arguments)
        declared = msgspec.json.decode(schema or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ()
    properties = declared.get("properties") if isinstance(declared, dict) else None
    names = properties if isinstance(properties, dict) else {}
    if isinstance(payload, dict) and not names and len(payload.keys() - {*_ENVELOPE}) > 1:
        return ()  # nothing says that a member among others is no argument
    return unwrapped(payload, names).layers


_ENVELOPE: Final = ("jsonrpc", "id", "method", "name", "tool", "_meta")
