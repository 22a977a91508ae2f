"""Write protocol/message_schemas.json from the installed `mcp` package.

    python -m tests.protocol.generate_message_schemas

The file has the JSON Schemas of MCP's messages. `score` reads it because importing `mcp_types`
takes half a second. test_message_schemas.py fails if the installed package gives a different file.
The schemas differ from those of the package:

- An optional member must not be null (pydantic's `| None`), as in the official schemas.
- A union of objects that differ by `type` becomes a choice by `type`, so that an error names the
  member that is wrong, not the union.
- Members that have their own rule are not required: `RULED_ELSEWHERE`.
"""

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from mcptally import protocol
from mcptally.jsonschemas.subschemas import each_subschema
from mcptally.protocol.revisions import ERA

TARGET: Final = Path(protocol.__file__).with_name("message_schemas.json")

ERAS: Final = tuple(dict.fromkeys(ERA.values()))
MODERN: Final = ERAS[-1]

MAPS: Final = {
    "requests": ("CLIENT_REQUESTS", "SERVER_REQUESTS"),
    "notifications": ("CLIENT_NOTIFICATIONS", "SERVER_NOTIFICATIONS"),
    "results": ("CLIENT_RESULTS", "SERVER_RESULTS"),
}

TASKS: Final = {
    "requests": {
        "tasks/get": "GetTaskRequest",
        "tasks/result": "GetTaskPayloadRequest",
        "tasks/list": "ListTasksRequest",
        "tasks/cancel": "CancelTaskRequest",
    },
    "notifications": {"notifications/tasks/status": "TaskStatusNotification"},
    "results": {
        "tasks/get": "GetTaskResult",
        "tasks/list": "ListTasksResult",
        "tasks/cancel": "CancelTaskResult",
        "task": "CreateTaskResult",
    },
}
"""Methods and types of tasks (2025-11-25), which `mcp_types.methods` leaves out."""

RULED_ELSEWHERE: Final = {
    "isError": "protocol.is_error_not_boolean",
    "resultType": "protocol.result_type_missing, protocol.result_type_unknown",
    "_meta": "protocol.meta_missing",
    "io.modelcontextprotocol/protocolVersion": "protocol.meta_missing",
    "io.modelcontextprotocol/clientCapabilities": "protocol.meta_missing",
    "tools": "definition.shape, for each tool apart",
    "jsonrpc": "protocol.jsonrpc_version",
    "id": "protocol.null_id, protocol.id_type",
}
"""Member that the schemas do not require → the rule that checks it."""


def schemas() -> dict[str, Any]:
    """Return the `$defs` per era, and the definition's name per kind and method."""
    import mcp_types
    from mcp_types import methods
    from pydantic import TypeAdapter

    made: dict[str, Any] = {"mcp": metadata.version("mcp")}
    for era in ERAS:
        wire = getattr(mcp_types, "_v" + era.replace("-", "_"))
        models = {
            (kind, method): model
            for kind, maps in MAPS.items()
            for name in maps
            for (method, revision), model in getattr(methods, name).items()
            if revision == era
        }
        if era == MODERN:
            # Results of these methods are a union; resultType says which of the two one is.
            for method in ("tools/call", "prompts/get", "resources/read"):
                models["results", method] = models["results", method].__args__[0]
            models["results", "input_required"] = wire.InputRequiredResult
        else:
            for kind, names in TASKS.items():
                models |= {(kind, method): getattr(wire, name) for method, name in names.items()}
        models["definitions", "tool"] = wire.Tool
        adapters: Any = [(key, "validation", TypeAdapter(model)) for key, model in models.items()]
        found: Any
        found, document = TypeAdapter.json_schemas(adapters, by_alias=True)
        definitions = {name: simplified(value) for name, value in document["$defs"].items()}
        own = {key: found[key, "validation"]["$ref"].rsplit("/", 1)[-1] for key in models}
        definitions = {
            name: with_choices_by_type(value, definitions) for name, value in definitions.items()
        }
        relaxed = {
            own[key]: _relaxed(kind, definitions[own[key]])
            for key in models
            if (kind := key[0]) != "definitions"
        }
        made[era] = {"$defs": dict(sorted((definitions | relaxed).items()))}
        for kind in (*MAPS, "definitions"):
            made[era][kind] = {m: own[k, m] for k, m in sorted(models) if k == kind}
    return made


def simplified(schema: Any) -> Any:
    """Return a schema without descriptions, in which optional members must not be null."""

    def simplify(node: dict[str, Any]) -> dict[str, Any]:
        out = {key: v for key, v in node.items() if key not in {"title", "description", "default"}}
        required = out.get("required", ())
        members = out.get("properties", {})
        for name, member in members.items():
            options = member.get("anyOf") if isinstance(member, dict) else None
            if options and name not in required and {"type": "null"} in options:
                rest = [option for option in options if option != {"type": "null"}]
                bare = {k: v for k, v in member.items() if k != "anyOf"}
                members[name] = bare | (rest[0] if len(rest) == 1 else {"anyOf": rest})
        return out

    return each_subschema(schema, simplify)


def with_choices_by_type(schema: Any, definitions: dict[str, Any]) -> Any:
    """A schema in which unions of objects with a constant `type` become choices by `type`."""

    def choose(node: dict[str, Any]) -> dict[str, Any]:
        for union in ("anyOf", "oneOf"):
            kinds = {}
            others = []
            for option in node.get(union, ()):
                name = option.get("$ref", "").rsplit("/", 1)[-1]
                kind = definitions.get(name, {}).get("properties", {}).get("type", {}).get("const")
                if kind is None or kind in kinds:
                    others.append(option)
                else:
                    kinds[kind] = option
            if len(kinds) > 1:
                rest = {key: v for key, v in node.items() if key not in {union, "discriminator"}}
                choice = {
                    "type": "object",
                    "required": ["type"],
                    "properties": {"type": {"enum": sorted(kinds)}},
                    "allOf": [
                        {"if": {"properties": {"type": {"const": kind}}}, "then": option}
                        for kind, option in kinds.items()
                    ],
                }
                return rest | ({union: [choice, *others]} if others else choice)
        return node

    return each_subschema(schema, choose)


def _relaxed(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The definition of a message, without requiring members that have their own rule."""
    out = json.loads(json.dumps(schema))
    properties = out.get("properties", {})
    gone = {"isError", "resultType"} if kind == "results" else {"jsonrpc", "id"}
    out["required"] = [name for name in out.get("required", ()) if name not in gone]
    for name in gone & properties.keys():
        properties[name] = {}
    if kind == "results" and "tools" in out["required"]:
        name = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
        properties["tools"] = {"type": "array", "items": name}
    return out  # type: ignore[no-any-return]


def _without_required_meta(made: dict[str, Any]) -> dict[str, Any]:
    """The schemas with all members of `_meta` optional: `protocol.meta_missing` checks them."""
    era = made[MODERN]
    # The package allows any value; the official schema says Implementation.
    for definition in era["$defs"].values():
        members = definition.get("properties", {})
        if members.get("io.modelcontextprotocol/serverInfo") == {}:
            members["io.modelcontextprotocol/serverInfo"] = {"$ref": "#/$defs/Implementation"}
    for name, definition in era["$defs"].items():
        required = definition.get("required", ())
        if name.endswith("Params"):
            definition["required"] = [n for n in required if n != "_meta"]
        elif name == "RequestMetaObject":
            definition["required"] = [n for n in required if n not in RULED_ELSEWHERE]
    for name in era["requests"].values():
        request = era["$defs"][name]
        params = request["properties"]["params"].get("$ref", "").rsplit("/", 1)[-1]
        if not era["$defs"].get(params, {}).get("required"):
            request["required"] = [n for n in request["required"] if n != "params"]
    return made


def text() -> str:
    """The text of the file."""
    made = _without_required_meta(schemas())
    return json.dumps(made, indent=None, separators=(",", ":"), sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    sys.stderr.write(f"{TARGET}: {TARGET.stat().st_size} bytes\n")
