"""What a caller gave: arguments without their wrappers, and the first member that is there.

A call's arguments may come wrapped: in a JSON-RPC envelope's `params`, in `arguments`, `args`,
`parameters` or `input`, as a JSON string. `unwrapped` gives the plain object that a tool should
see; a call whose arguments needed it is a finding.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

WRAPPERS: Final = ("params", "arguments", "args", "parameters", "input")
"""Members that hold the arguments, in the order in which they are looked for."""

MAX_LAYERS: Final = 8


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
            inner = _object(value)
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
        return name if isinstance(inner, dict) or _object(inner) is not None else None
    return None


def _object(text: Any) -> dict[str, Any] | None:
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
