"""Implements the demo's MCP servers; `python -m mcptally.demo.servers NAME VERSION` runs one.

`TOOLS` states the fault of each tool, so that users can compare mcptally's findings with the truth.
"""

import dataclasses
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

BOOKSHOP: Final = "bookshop"
VERSIONS: Final = ("1.0", "1.1")
NEWSLETTER: Final = "newsletter"
NEVER_STARTS: Final = "never starts: an environment variable is not set"

Arguments = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the demo: its definition, what is wrong with it, and its implementation."""

    description: str
    arguments: Mapping[str, str]
    """Maps the name of each required argument to its type."""
    truth: str
    """What is wrong with the tool, and who is at fault."""
    answer: Callable[[Arguments, str], Any]
    """The implementation: maps the arguments and the server's version to text or structured
    content, or to None for no reply. An exception becomes a result with `isError`."""
    output: Mapping[str, str] | None = None
    """Maps the name of each required member of the structured content to its type."""


def _search(arguments: Arguments, _: str) -> str:
    pages = {"first": [f"{arguments['query']}, volume {number}" for number in (1, 2, 3)]}
    found = pages["first" if arguments["limit"] <= 500 else "second"]
    return ", ".join(found[: arguments["limit"]])


def _book(arguments: Arguments, _: str) -> str:
    isbn = arguments["isbn"].replace("-", "")
    if len(isbn) != 13 or not isbn.isdigit():
        raise ValueError(f"Invalid ISBN {arguments['isbn']!r}: it must have 13 digits")
    return f"{isbn}: A History of Paper, 24.90 EUR"


def _convert(arguments: Arguments, _: str) -> str:
    if arguments["currency"] == "JPY":
        return "Error: the exchange rate service answered 503 Service Unavailable"
    return f"{arguments['amount'] * 1.1:.2f} {arguments['currency']}"


def _order(arguments: Arguments, version: str) -> str:
    if version == "1.1":
        raise PermissionError("401 Unauthorized: the API key of the publisher has expired")
    return f"Ordered {arguments['isbn']}"


def _catalogue(arguments: Arguments, _: str) -> str | None:
    return None if arguments["format"] == "pdf" else "# Catalogue\n\n- A History of Paper"


def _recommend(arguments: Arguments, _: str) -> dict[str, Any]:
    title = "A History of Paper"
    return {"titles": title if arguments["genre"] == "poetry" else [title]}


def _shelves(_: Arguments, __: str) -> str:
    return "fiction, history, poetry"


TOOLS: Final[Mapping[str, Tool]] = {
    "search_books": Tool(
        "Search the catalogue.",
        {"query": "string", "limit": "integer"},
        "crashes where `limit` is above 500: the tool's fault",
        _search,
    ),
    "get_book": Tool(
        "Get a book by its ISBN.",
        {"isbn": "string"},
        "works: it refuses an invalid ISBN, which is the caller's fault",
        _book,
    ),
    "convert_price": Tool(
        "Convert a price in EUR.",
        {"amount": "number", "currency": "string"},
        "reports for JPY that a service fails, without `isError`: an upstream fault, hidden",
        _convert,
    ),
    "order_book": Tool(
        "Order a book.",
        {"isbn": "string"},
        "is refused since version 1.1, whose API key has expired: the account's fault",
        _order,
    ),
    "print_catalogue": Tool(
        "Print the catalogue.",
        {"format": "string"},
        "never answers where `format` is pdf: not known whose fault",
        _catalogue,
    ),
    "recommend": Tool(
        "Recommend books of a genre.",
        {"genre": "string"},
        "returns for poetry what violates its own output schema: the tool's fault",
        _recommend,
        {"titles": "array"},
    ),
    "list_shelves": Tool("List the shelves.", {}, "works", _shelves),
}


def _schema(members: Mapping[str, str]) -> dict[str, Any]:
    types = {name: {"type": kind, "description": name} for name, kind in members.items()}
    return {"type": "object", "properties": types, "required": list(members)}


def _definition(name: str, tool: Tool) -> dict[str, Any]:
    definition = {
        "name": name,
        "description": tool.description,
        "inputSchema": _schema(tool.arguments),
    }
    return (
        definition if tool.output is None else {**definition, "outputSchema": _schema(tool.output)}
    )


def _call(params: Mapping[str, Any], version: str) -> dict[str, Any] | None:
    """Return the result of `tools/call`, or None if the tool does not reply."""
    try:
        answer = TOOLS[params["name"]].answer(params["arguments"], version)
    except Exception as error:  # noqa: BLE001  (becomes the result, as in most servers)
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        return {"content": [{"type": "text", "text": text}], "isError": True}
    if answer is None:
        return None
    if isinstance(answer, str):
        return {"content": [{"type": "text", "text": answer}]}
    text = json.dumps(answer)
    return {"content": [{"type": "text", "text": text}], "structuredContent": answer}


def _result(request: Mapping[str, Any], version: str) -> dict[str, Any] | None:
    """Return the result of a request, or None if the server does not reply."""
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": BOOKSHOP, "version": version},
            }
        case "tools/list":
            return {"tools": [_definition(name, tool) for name, tool in TOOLS.items()]}
        case "tools/call":
            return _call(request["params"], version)
    return None  # a notification gets no reply


def main(name: str, version: str) -> None:
    """Run a demo server until stdin ends."""
    if name == NEWSLETTER:
        sys.exit("RuntimeError: the environment variable NEWSLETTER_TOKEN is not set")
    for line in sys.stdin:
        request = json.loads(line)
        result = _result(request, version)
        if result is not None:
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
