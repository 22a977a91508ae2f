"""The two validators of the validation-protocol seed: the document's listing and the program.

They are here to be compared with and answered for, faults included: what they say of a call is
what a user of either would have been told. JavaScript decides what `in`, `typeof` and a template
string mean; docs/explanation/seed-validation-protocol.md says where the two differ and why.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.seeds.inspector.javascript import number, parse, truthy

Answer = dict[str, Any]
"""`valid`, `errors`, `warnings`, and what a validator adds."""

PROTOTYPE: Final = frozenset(
    [
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
        "__defineGetter__",
        "__defineSetter__",
        "__lookupGetter__",
        "__lookupSetter__",
        "__proto__",
    ]
)
"""Names that every JavaScript object has, so that `in` finds them in `{}`."""

_UNDEFINED: Final = object()
_INHERITED: Final = object()
"""What a name of `PROTOTYPE` gives: a function, true and without members that matter here."""


class ThrownError(Exception):
    """The original throws here; the message is the engine's."""


def doc_basic(tools: Mapping[str, Any], tool: str, arguments: Any) -> Answer:
    """The document's basic listing.

    Raises:
        ThrownError: it throws, as it does where a schema has no properties.
    """
    if tool not in tools:
        return {"valid": False, "errors": [f"Unknown tool: {tool}"], "warnings": []}
    schema = tools[tool]
    errors = [
        f"Missing required parameter: {_shown(name)}"
        for name in _each(_member(schema, "required"))
        if not _in(name, arguments)
    ]
    warnings = []
    properties = _member(schema, "properties")
    for name, value in _entries(arguments):
        if properties is _UNDEFINED or properties is None:
            kind = "undefined" if properties is _UNDEFINED else "null"
            raise ThrownError(f"TypeError: Cannot read properties of {kind} (reading '{name}')")
        declared = _member(properties, name)
        if not _truthy(declared):
            warnings.append(f'Parameter "{name}" not in schema')
            continue
        expected, actual = _member(declared, "type"), _type(value)
        if expected != actual:
            errors.append(f'Parameter "{name}": expected {_shown(expected)}, got {actual}')
    return {"valid": not errors, "errors": errors, "warnings": warnings}


_TYPES: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "object": "object",
    "array": "array",
}


def ncp_schema_only(schema: Any, parameters: Any) -> Answer:
    """The program's check by schema alone: `errors` and `warnings`.

    Raises:
        ThrownError: it throws, as it does for parameters that are no object.
    """
    if not truthy(schema):
        return {"errors": [], "warnings": ["No schema available for parameter validation"]}
    errors = [
        f'Missing required parameter: "{_shown(name)}"'
        for name in _each(_member(schema, "required"))
        if not _in(name, parameters)
    ]
    warnings = []
    properties = _member(schema, "properties")
    for name, value in _entries(parameters):
        declared = _member(properties, name) if isinstance(properties, dict) else _UNDEFINED
        if not _truthy(declared):
            warnings.append(f'Parameter "{name}" not in schema (may be ignored by tool)')
        else:
            errors += list(_first_fault(name, value, declared))[:1]
    return {"errors": errors, "warnings": warnings}


def _first_fault(name: str, value: Any, declared: Any) -> Iterator[str]:
    kind = _member(declared, "type")
    expected = _TYPES.get(kind) if isinstance(kind, str) else None
    if expected is not None and _type(value) != expected:
        yield f'Parameter "{name}" type mismatch: expected {kind}, got {_type(value)}'
    if kind == "integer" and isinstance(value, float) and not value.is_integer():
        yield f'Parameter "{name}" must be an integer, got {_shown(value)}'
    allowed = _member(declared, "enum")
    if isinstance(allowed, list) and not any(_same(value, each) for each in allowed):
        yield f'Parameter "{name}" must be one of: {_joined(allowed, ", ")}'


# --- the program's handleValidate ---

_MISSING: Final = "Missing required parameters: tool and parameters"
_SCHEDULE: Final = re.compile(
    r"\A\s*in\s+\d+\s*(?:minutes?|min|hours?|hr|days?)\s*\Z"
    r"|every minute|every 0*[1-9]\d? minutes?|every hour|hourly|every day|daily|weekday"
    r"|monday to friday|mon-fri|weekend|(?:sun|mon|tues|wednes|thurs|fri|satur)day"
    r"|monthly|first day of"
)
"""Schedules that the program reads; cron expressions, which its description promises, are none."""

_MINUTES: Final = re.compile(r"every (\d+) minutes?")


def handle_validate(
    given: Mapping[str, Any],
    catalog: Mapping[str, Mapping[str, Any]],
    internal: Mapping[str, Mapping[str, Any]],
) -> Answer:
    """The answer of the program's `validate` to the arguments `given`.

    Args:
        given: `tool` (as mcp:tool), `parameters`, `schedule`.
        catalog: server → tool → input schema.
        internal: server → `capability`, and the `result` of its own validation or what it `throws`.

    The program goes on to list the schedules it reads; that text is its own and is left out.
    """
    tool, parameters = given.get("tool"), given.get("parameters")
    if not truthy(tool) or not truthy(parameters):
        return {"valid": False, "errors": [_MISSING], "warnings": []}
    answer: Answer = {"valid": True, "errors": [], "warnings": []}
    schedule = given.get("schedule")
    try:
        if truthy(schedule) and not readable_schedule(schedule):
            answer["errors"].append("Invalid schedule: no supported pattern")
        checked = _validate_tool(tool, parameters, catalog, internal)
    except ThrownError as error:
        checked = {"valid": False, "errors": [f"Validation error: {error}"], "warnings": []}
    answer["errors"] += checked.pop("errors")
    answer["warnings"] += checked.pop("warnings")
    answer["valid"] = bool(checked.pop("valid")) and not answer["errors"]
    return answer | checked


def readable_schedule(schedule: Any) -> bool:
    """Whether the program reads a schedule.

    Raises:
        ThrownError: it is no text.
    """
    if not isinstance(schedule, str):
        raise ThrownError("description.toLowerCase is not a function")
    text = schedule.lower().strip()
    found = _SCHEDULE.search(text)
    minutes = _MINUTES.search(text)
    if found and minutes and found[0] == minutes[0]:
        # "every 75 minutes" is no schedule by its minutes; another phrase may still make it one.
        rest = text[: minutes.start()] + " " + text[minutes.end() :]
        return 1 <= int(minutes[1]) <= 59 or _SCHEDULE.search(rest) is not None
    return found is not None


_NOT_NATIVE: Final = (
    'MCP "{}" doesn\'t support native validation - using basic schema validation only',
    "For better validation, implement tools/validate in the MCP",
)


def _validate_tool(
    tool: Any,
    parameters: Any,
    catalog: Mapping[str, Mapping[str, Any]],
    internal: Mapping[str, Mapping[str, Any]],
) -> Answer:
    if not isinstance(tool, str | list):
        raise ThrownError("tool.includes is not a function")
    server, _, rest = tool.partition(":") if isinstance(tool, str) else ("", "", "")
    name = rest.split(":")[0]
    if not server or not name:
        words = f'Invalid tool format: "{_shown(tool)}". Expected format: "mcp_name:tool_name"'
        return {"valid": False, "errors": [words], "warnings": []}
    native = _native(internal.get(server))
    if native is not None:
        return native
    warnings = [line.format(server) for line in _NOT_NATIVE]
    schemas = catalog.get(server, {})
    if name not in schemas:
        words = f"Tool not found: {tool}. Use 'ncp find' to discover available tools."
        return {"valid": False, "errors": [words], "warnings": warnings}
    schema = schemas[name]
    try:
        checked = ncp_schema_only(schema, parameters)
    except ThrownError as error:
        return {"valid": False, "errors": [f"Validation error: {error}"], "warnings": warnings}
    answer = checked | {
        "valid": not checked["errors"],
        "warnings": warnings + checked["warnings"],
        "schema": schema,
    }
    return answer if checked["errors"] else answer | {"validationMethod": "schema-only"}


def _native(server: Mapping[str, Any] | None) -> Answer | None:
    """What a server's own validation says; None where it has none that can be read."""
    if not server or server.get("capability") is not True or "throws" in server:
        return None
    result = server.get("result")
    if not isinstance(result, dict) or not truthy(result.get("success")):
        return None
    said = native_answer(result.get("content"))
    if said is None:
        return None
    valid = said.get("valid")
    answer = {
        "valid": truthy(valid) if "valid" in said else False,
        "validationMethod": "mcp-native",
    }
    errors = [] if answer["valid"] else _spread(said.get("errors"))
    return answer | {"errors": errors, "warnings": _spread(said.get("warnings"))}


def native_answer(content: Any) -> dict[str, Any] | None:
    """The answer in the `content` of a validation, as the program looks for it."""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text", content)
    if isinstance(content, str):
        try:
            content = parse(content)
        except (ValueError, RecursionError):
            return None
    if content is None:
        return None
    return content if isinstance(content, dict) else {}


def _spread(value: Any) -> list[Any]:
    """`[...(value || [])]`: a text falls into its characters."""
    if not truthy(value):
        return []
    if isinstance(value, str | list):
        return list(value)
    raise ThrownError("Spread syntax requires ...iterable[Symbol.iterator] to be a function")


# --- JavaScript ---


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        if name in value:
            return value[name]
        return _INHERITED if name in PROTOTYPE else _UNDEFINED
    return _UNDEFINED


def _truthy(value: Any) -> bool:
    return value is _INHERITED or (value is not _UNDEFINED and truthy(value))


def _each(value: Any) -> list[Any]:
    """`for (x of value || [])`."""
    if value is _UNDEFINED or not truthy(value):
        return []
    return list(value) if isinstance(value, str | list) else []


def _in(name: Any, value: Any) -> bool:
    key = _shown(name)
    if isinstance(value, dict):
        return key in value or key in PROTOTYPE
    if isinstance(value, list):
        return key == "length" or key in PROTOTYPE or (key.isdigit() and int(key) < len(value))
    raise ThrownError(f"Cannot use 'in' operator to search for '{key}' in {_shown(value)}")


def _entries(value: Any) -> list[tuple[str, Any]]:
    """`Object.entries(value)`: members whose names are array indices come first, ascending."""
    if isinstance(value, str | list):
        return [(str(place), item) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return []
    indices = [key for key in value if re.match(r"(?:0|[1-9]\d{0,9})\Z", key)]
    indices = sorted((key for key in indices if int(key) < 2**32 - 1), key=int)
    return [(key, value[key]) for key in (*indices, *(k for k in value if k not in indices))]


def _type(value: Any) -> str:
    """`Array.isArray(value) ? "array" : typeof value`."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _same(left: Any, right: Any) -> bool:
    """`left === right`, for values that came from two JSON texts."""
    if isinstance(left, dict | list) or isinstance(right, dict | list):
        return False
    return _type(left) == _type(right) and bool(left == right)


def _shown(value: Any) -> str:
    """`${value}`."""
    if value is _UNDEFINED:
        return "undefined"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _joined(value, ",")
    if isinstance(value, dict):
        return "[object Object]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return number(value)


def _joined(values: list[Any], between: str) -> str:
    """`values.join(between)`: null is nothing."""
    return between.join("" if value is None else _shown(value) for value in values)
