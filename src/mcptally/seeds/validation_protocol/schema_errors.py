"""Arguments against an inputSchema, in words that name the parameter and what it has to be."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from mcptally.errors import near
from mcptally.jsonschemas import validators
from mcptally.jsonschemas.cost import errors_of
from mcptally.jsonschemas.dialects import UnusableError, dialect, read
from mcptally.seeds.validation_protocol.argument_semantics import Remark


def remarks(schema: str, arguments: Any) -> Iterator[Remark]:
    """What a schema (JSON text) has against arguments; unknown parameters are warnings."""
    judge = validators.judge_of(schema)
    if isinstance(judge, str):
        words = f"the tool's inputSchema cannot be used: {judge}"
        yield Remark("unchecked", "", f"arguments against their schema ({words})")
        return
    state, why, path = judge(arguments)
    found = list(_errors(schema, arguments)) if state == "invalid" else []
    if state == "invalid" and not found:
        found = [Remark("error", _dotted((path or "").split("/")[1:]), why or "is refused")]
    yield from dict.fromkeys(found)
    if state == validators.UNUSABLE:
        yield Remark("unchecked", "", f"arguments against their schema ({why})")
    try:
        yield from _unknown(read(schema), arguments, ())
    except UnusableError:
        return


def _errors(schema: str, arguments: Any) -> Iterator[Remark]:
    """The errors of the fast engine, as many as are cheap; none where it refuses the schema."""
    try:
        value = read(schema)
        name = dialect(value)
        value = validators.without_dialect(value)
        errors = errors_of(validators.engine_of(name, value), value, arguments)
    except validators.REFUSED:  # `UnusableError` among them
        return
    for error in errors:
        path = [str(part) for part in error.instance_path]
        yield from _said(error, path)


def _said(error: Any, path: Sequence[str]) -> Iterator[Remark]:
    name, detail = error.kind.name, error.kind.as_dict()
    if name == "required":
        yield Remark("error", _dotted((*path, detail["property"])), "Missing required parameter")
    elif name == "type":
        kinds = " or ".join(sorted(detail.get("types", ())))
        yield Remark(
            "error", _dotted(path), f"expected {kinds}, got {validators.kind(error.instance)}"
        )
    elif name in ("enum", "const"):
        allowed = detail.get("options", detail.get("expected_value"))
        given = msgspec.json.encode(error.instance).decode()[:80]
        yield Remark("error", _dotted(path), f"must be one of {_listed(allowed)}, got {given}")
    elif name in ("additionalProperties", "unevaluatedProperties"):
        for extra in detail.get("unexpected", ()):
            yield Remark(
                "error", _dotted((*path, extra)), "is not in the schema, which has no others"
            )
    else:
        yield Remark("error", _dotted(path), error.message[:300])


def _listed(allowed: Any) -> str:
    items = allowed if isinstance(allowed, list) else [allowed]
    shown = ", ".join(msgspec.json.encode(item).decode() for item in items[:20])
    return shown + (", …" if len(items) > 20 else "")


def _unknown(schema: Any, value: Any, path: tuple[str, ...]) -> Iterator[Remark]:
    """Parameters that the schema does not name and does not refuse either."""
    if not isinstance(schema, dict) or not isinstance(value, dict) or len(path) > 20:
        return
    properties = schema.get("properties")
    open_ = "additionalProperties" not in schema and not schema.keys() & _OTHERS
    if not isinstance(properties, dict):
        return
    for name, item in value.items():
        if name in properties:
            yield from _unknown(properties[name], item, (*path, name))
        elif open_:
            hint = near(name, properties)
            yield Remark("warning", _dotted((*path, name)), f"is not in the schema{hint}")


_OTHERS: Final = frozenset(
    {"patternProperties", "allOf", "anyOf", "oneOf", "$ref", "unevaluatedProperties"}
)
"""Keywords by which a parameter may be declared elsewhere than in `properties`."""


def _dotted(path: Sequence[str]) -> str:
    """`a.b[0]`, as a person writes it."""
    return "".join(
        f"[{part}]" if part.isdigit() else f".{part}" if place else part
        for place, part in enumerate(path)
    )
