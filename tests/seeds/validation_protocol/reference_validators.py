"""Reproduces two validators: the document's code and the original program's code.

The functions return the same answers as the original code, including its bugs. `in`, `typeof` and
template strings behave as in JavaScript. docs/reference/seed-documents.md lists the differences
between the two validators.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.redaction.key_patterns import words
from mcptally.seeds.javascript import number, parse, truthy

Answer = dict[str, Any]
"""The members `valid`, `errors` and `warnings`, and those that one of the validators adds."""

PROTOTYPE: Final = words(
    "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf "
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ __proto__"
)
"""Members that every JavaScript object inherits: the operator `in` finds them even in `{}`."""

_UNDEFINED: Final = object()
_INHERITED: Final = object()
"""The value of a member in `PROTOTYPE`: a function, which JavaScript treats as truthy."""


class ThrownError(Exception):
    """Raised where the original validator throws; the message is that of the JavaScript engine."""


def document_answer(tools: Mapping[str, Any], tool: Any, arguments: Any) -> Answer:
    """Return the answer that the basic validator in the document gives.

    Args:
        tools: maps each tool's name to its input schema.
        tool: the tool to call.
        arguments: the arguments to check.

    Raises:
        ThrownError: the document's code throws, for example because a schema has no properties.
    """
    try:
        return _document_answer(tools, tool, arguments)
    except ThrownError as error:
        raise ThrownError(f"TypeError: {error}") from error


def _document_answer(tools: Mapping[str, Any], tool: Any, arguments: Any) -> Answer:
    if not isinstance(tool, str) or tool not in tools:
        return {"valid": False, "errors": [f"Unknown tool: {_to_string(tool)}"], "warnings": []}
    schema = tools[tool]
    if schema is None:
        raise ThrownError("Cannot read properties of null (reading 'required')")
    errors = [
        f"Missing required parameter: {_to_string(name)}"
        for name in _each(_member(schema, "required"))
        if not _in(name, arguments)
    ]
    warnings = []
    properties = _member(schema, "properties")
    for name, value in _entries(arguments):
        if properties is _UNDEFINED or properties is None:
            kind = "undefined" if properties is _UNDEFINED else "null"
            raise ThrownError(f"Cannot read properties of {kind} (reading '{name}')")
        declared = _member(properties, name)
        if not _truthy(declared):
            warnings.append(f'Parameter "{name}" not in schema')
            continue
        expected, actual = _member(declared, "type"), _type(value)
        if expected != actual:
            errors.append(f'Parameter "{name}": expected {_to_string(expected)}, got {actual}')
    return {"valid": not errors, "errors": errors, "warnings": warnings}


_TYPES: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "object": "object",
    "array": "array",
}


def program_schema_check(schema: Any, parameters: Any) -> Answer:
    """Check parameters as the original program does with only a schema; return the answer.

    The answer has the members `errors` and `warnings`.

    Raises:
        ThrownError: the original program throws, for example because `parameters` is not an object.
    """
    if not truthy(schema):
        return {"errors": [], "warnings": ["No schema available for parameter validation"]}
    errors = [
        f'Missing required parameter: "{_to_string(name)}"'
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
            errors += list(_type_errors(name, value, declared))[:1]
    return {"errors": errors, "warnings": warnings}


def _type_errors(name: str, value: Any, declared: Any) -> Iterator[str]:
    kind = _member(declared, "type")
    expected = _TYPES.get(kind) if isinstance(kind, str) else None
    if expected is not None and _type(value) != expected:
        yield f'Parameter "{name}" type mismatch: expected {kind}, got {_type(value)}'
    if kind == "integer" and isinstance(value, float) and not value.is_integer():
        yield f'Parameter "{name}" must be an integer, got {_to_string(value)}'
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
"""Matches the schedules that the original program accepts.

The program accepts no cron expressions, although its description promises them."""

_MINUTES: Final = re.compile(r"every (\d+) minutes?")


def program_answer(
    request: Mapping[str, Any],
    catalog: Mapping[str, Mapping[str, Any]],
    internal: Mapping[str, Mapping[str, Any]],
) -> Answer:
    """Return the answer of the original program's `validate`, except its list of schedules.

    Args:
        request: `tool` (as mcp:tool), `parameters`, `schedule`.
        catalog: maps each server to its tools, and each tool to its input schema.
        internal: for each server, its `capability`, and the `result` of the server's own validation
            or the error that it `throws`.
    """
    tool, parameters = request.get("tool"), request.get("parameters")
    if not truthy(tool) or not truthy(parameters):
        return {"valid": False, "errors": [_MISSING], "warnings": []}
    answer: Answer = {"valid": True, "errors": [], "warnings": []}
    schedule = request.get("schedule")
    try:
        if truthy(schedule) and not accepts_schedule(schedule):
            answer["errors"].append("Invalid schedule: no supported pattern")
        checked = _validate_tool(tool, parameters, catalog, internal)
    except ThrownError as error:
        checked = {"valid": False, "errors": [f"Validation error: {error}"], "warnings": []}
    answer["errors"] += checked.pop("errors")
    answer["warnings"] += checked.pop("warnings")
    answer["valid"] = bool(checked.pop("valid")) and not answer["errors"]
    return answer | checked


def accepts_schedule(schedule: Any) -> bool:
    """Return whether the original program accepts a schedule.

    Raises:
        ThrownError: the schedule is not a string.
    """
    if not isinstance(schedule, str):
        raise ThrownError("description.toLowerCase is not a function")
    text = schedule.lower().strip()
    found = _SCHEDULE.search(text)
    minutes = _MINUTES.search(text)
    if found and minutes and found[0] == minutes[0]:
        # "every 75 minutes" is not accepted, but the text may also contain a phrase that is.
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
        error = f'Invalid tool format: "{_to_string(tool)}". Expected format: "mcp_name:tool_name"'
        return {"valid": False, "errors": [error], "warnings": []}
    native = _native_answer(internal.get(server))
    if native is not None:
        return native
    warnings = [line.format(server) for line in _NOT_NATIVE]
    schemas = catalog.get(server, {})
    if name not in schemas:
        error = f"Tool not found: {tool}. Use 'ncp find' to discover available tools."
        return {"valid": False, "errors": [error], "warnings": warnings}
    schema = schemas[name]
    try:
        checked = program_schema_check(schema, parameters)
    except ThrownError as thrown:
        return {"valid": False, "errors": [f"Validation error: {thrown}"], "warnings": warnings}
    answer = checked | {
        "valid": not checked["errors"],
        "warnings": warnings + checked["warnings"],
        "schema": schema,
    }
    return answer if checked["errors"] else answer | {"validationMethod": "schema-only"}


def _native_answer(server: Mapping[str, Any] | None) -> Answer | None:
    """Return a server's own answer to a validation.

    Returns None if the original program cannot parse it.
    """
    if not server or server.get("capability") is not True or "throws" in server:
        return None
    result = server.get("result")
    if not isinstance(result, dict) or not truthy(result.get("success")):
        return None
    found = parse_native_answer(result.get("content"))
    if found is None:
        return None
    valid = found.get("valid")
    answer = {
        "valid": truthy(valid) if "valid" in found else False,
        "validationMethod": "mcp-native",
    }
    errors = [] if answer["valid"] else _spread(found.get("errors"))
    return answer | {"errors": errors, "warnings": _spread(found.get("warnings"))}


def parse_native_answer(content: Any) -> dict[str, Any] | None:
    """Return the answer that the original program finds in a validation's `content`, or None."""
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
    """Return JavaScript's `[...(value || [])]`, in which a string becomes its characters."""
    if not truthy(value):
        return []
    if isinstance(value, str | list):
        return list(value)
    raise ThrownError("Spread syntax requires ...iterable[Symbol.iterator] to be a function")


# --- JavaScript ---


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]
    if isinstance(value, str | list):
        if name == "length":
            return len(value)
        if _INDEX.match(name) and int(name) < len(value):
            return value[int(name)]
    is_object = value is not None and value is not _UNDEFINED
    return _INHERITED if is_object and name in PROTOTYPE else _UNDEFINED


def _truthy(value: Any) -> bool:
    return value is _INHERITED or (value is not _UNDEFINED and truthy(value))


def _each(value: Any) -> list[Any]:
    """Return the values over which JavaScript's `for (x of value || [])` iterates."""
    if value is _UNDEFINED or not truthy(value):
        return []
    if not isinstance(value, str | list):
        what = "object" if isinstance(value, dict) else f"{_type(value)} {_to_string(value)}"
        raise ThrownError(f"{what} is not iterable (cannot read property Symbol(Symbol.iterator))")
    return list(value)


def _in(name: Any, value: Any) -> bool:
    """Return the result of JavaScript's `name in value`."""
    if not isinstance(value, dict | list):
        shown = {"object": "#<Object>", "array": "[object Array]"}
        key = _to_string(name) if name is None else shown.get(_type(name)) or _to_string(name)
        raise ThrownError(f"Cannot use 'in' operator to search for '{key}' in {_to_string(value)}")
    key = _to_string(name)
    if isinstance(value, dict):
        return key in value or key in PROTOTYPE
    is_index = _INDEX.match(key) is not None and int(key) < len(value)
    return is_index or key == "length" or key in PROTOTYPE


_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
"""Matches member names that are array indices."""


def _entries(value: Any) -> list[tuple[str, Any]]:
    """Return JavaScript's `Object.entries(value)`: array indices come first, in ascending order."""
    if value is None:
        raise ThrownError("Cannot convert undefined or null to object")
    if isinstance(value, str | list):
        return [(str(place), item) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return []
    indices = [key for key in value if _INDEX.match(key)]
    indices = sorted((key for key in indices if int(key) < 2**32 - 1), key=int)
    return [(key, value[key]) for key in (*indices, *(k for k in value if k not in indices))]


def _type(value: Any) -> str:
    """Return JavaScript's `Array.isArray(value) ? "array" : typeof value`."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _same(left: Any, right: Any) -> bool:
    """Return JavaScript's `left === right` for values parsed from two JSON texts."""
    if isinstance(left, dict | list) or isinstance(right, dict | list):
        return False
    return _type(left) == _type(right) and bool(left == right)


def _to_string(value: Any) -> str:
    """Return JavaScript's `${value}`: the value converted to a string."""
    if value is _UNDEFINED:
        return "undefined"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _joined(value, ",")
    if isinstance(value, dict):
        if "toString" in value:  # a member from JSON is never a function
            raise ThrownError("Cannot convert object to primitive value")
        return "[object Object]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return number(value)


def _joined(values: list[Any], between: str) -> str:
    """Return JavaScript's `values.join(between)`, in which null becomes an empty string."""
    return between.join("" if value is None else _to_string(value) for value in values)
