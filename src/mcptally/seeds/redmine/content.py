"""Checks content blocks of tool results against the Redmine document and MCP.

`violations` checks a result exactly like the code in the document or like the original program;
docs/reference/seed-documents.md lists the differences. `block_violations` checks blocks against the
MCP specification; findings are made from its result.
"""

import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from mcptally.seeds.violation import Violation, pointer
from mcptally.wire.nesting import (
    MAX_DEPTH,
    is_too_deep,
    is_value_too_deep,
    with_raised_recursion_limit,
)

Interpretation = Literal["document", "program"]

# Messages of the Jest matchers that the document's and the program's checks use.
HAS: Final = "expect(received).toHaveProperty(path)"
IS: Final = "expect(received).toBe(expected) // Object.is equality"
IN: Final = "expect(received).toContain(expected) // indexOf"
MORE: Final = "expect(received).toBeGreaterThan(expected)"
_TOO_DEEP: Final = f"the result is nested deeper than the limit of {MAX_DEPTH} levels"


@with_raised_recursion_limit
def assert_tool_response(result: Any, rules: Interpretation = "program") -> None:
    """Raise an AssertionError if a tool result breaks the contract.

    The message names the block and the path of each violation.

    Args:
        result: a CallToolResult of the SDK, a dict, or JSON text.
        rules: `program` applies the checks of the original program's helper, `document` the checks
            of the document's code listing.

    Raises:
        AssertionError: the result breaks the contract.
        ValueError: `rules` is unknown, the text is not JSON, or the result is nested too deeply.
    """
    if rules not in _BLOCK_CHECKS:
        raise ValueError(f"rules must be one of {', '.join(_BLOCK_CHECKS)}, not {rules!r}")
    if found := list(violations(_json_values(result), rules)):
        lines = [f"  {_where(each.path)}: {each.message}" for each in found]
        raise AssertionError("\n".join([f"not a tool response by the {rules}", *lines]))


def _json_values(result: Any) -> Any:
    """Convert a result to plain JSON values.

    Raises:
        ValueError: the text is not JSON, or the result is nested too deeply.
    """
    if isinstance(result, str | bytes | bytearray):
        text = result if isinstance(result, str) else bytes(result)
        if is_too_deep(text):
            raise ValueError(_TOO_DEEP)
        return json.loads(text)
    dump = getattr(result, "model_dump", None)
    value = dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else result
    if is_value_too_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def _where(path: str) -> str:
    """Format a JSON Pointer for an error message, with the position of its block."""
    block = re.match(r"/content/(\d+)", path)
    return f"block {block[1]} at {path}" if block else path or "the result"


def violations(result: Any, rules: Interpretation) -> Iterator[Violation]:
    """Yield all violations of an interpretation's checks in a tool result.

    Document and program themselves stop at the first violation.
    """
    for name in ("content", "isError"):
        if not _has(result, name):
            yield Violation(pointer(name), f"{name} is missing", HAS)
    if not _has(result, "content"):
        return
    content = result["content"]
    if not isinstance(content, list):
        yield Violation("/content", "content is not an array", IS)
        return
    if not content:
        yield Violation("/content", "content is empty", MORE)
    for number, item in enumerate(content):
        if not _has(item, "type"):
            yield Violation(pointer("content", number, "type"), "the block has no type", HAS)
        else:
            yield from _BLOCK_CHECKS[rules](item, number)


def _document_block(item: Any, number: int) -> Iterator[Violation]:
    at = ("content", number)
    kind = item["type"]
    if kind not in ("text", "image", "resource"):
        message = f"type {json.dumps(kind)} is not one of text, image, resource"
        yield Violation(pointer(*at, "type"), message, IN)
        return
    needed = {"text": ("text",), "image": ("data", "mimeType"), "resource": ("resource",)}[kind]
    for name in needed:
        if not _has(item, name):
            yield Violation(pointer(*at, name), f"{kind} block without {name}", HAS)
            return
    if kind == "text" and not isinstance(item["text"], str):
        yield Violation(pointer(*at, "text"), "text is not a string", IS)


def _program_block(item: Any, number: int) -> Iterator[Violation]:
    at = ("content", number)
    kind = item["type"]
    if kind == "text":
        yield from _program_text(item, at)
    elif kind == "image":
        missing = [name for name in ("data", "mimeType") if not _has(item, name)]
        if missing:
            yield Violation(pointer(*at, missing[0]), f"image block without {missing[0]}", HAS)
            return
        for name in ("data", "mimeType"):
            if not isinstance(item[name], str):
                yield Violation(pointer(*at, name), f"{name} is not a string", IS)
                return
    elif kind == "resource":
        yield from _program_resource(item, at)


def _program_text(item: Any, at: tuple[str | int, ...]) -> Iterator[Violation]:
    if not _has(item, "text"):
        yield Violation(pointer(*at, "text"), "text block without text", HAS)
    elif not isinstance(item["text"], str):
        yield Violation(pointer(*at, "text"), "text is not a string", IS)
    elif not item["text"]:
        yield Violation(pointer(*at, "text"), "text is empty", MORE)


def _program_resource(item: Any, at: tuple[str | int, ...]) -> Iterator[Violation]:
    if not _has(item, "resource"):
        yield Violation(pointer(*at, "resource"), "resource block without resource", HAS)
        return
    resource = item["resource"]
    if not _has(resource, "uri"):
        yield Violation(pointer(*at, "resource", "uri"), "resource without uri", HAS)
        return
    name = "text" if "text" in resource else "blob"
    if not isinstance(resource.get(name), str):
        yield Violation(pointer(*at, "resource", name), f"{name} is not a string", IS)


_BLOCK_CHECKS: Final[Mapping[str, Callable[[Any, int], Iterator[Violation]]]] = {
    "document": _document_block,
    "program": _program_block,
}


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value


# --- the blocks of the MCP specification: rules in rules/contracts-content.toml ---

_MIME: Final = re.compile(
    # Possessive quantifiers (*+) prevent exponential backtracking on long runs of blanks.
    r"[\w!#$&^.+-]+/[\w!#$&^.+*-]+(?:\s*;\s*[\w!#$&^.+-]+=(?:\"[^\"]*\"|[^;\"]*+))*+\Z"
)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}\Z")
_BASE64_URL: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}\Z")

_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
)
"""Pairs of the first bytes of a file, and the MIME type that they indicate."""


def block_violations(content: Any) -> Iterator[Violation]:
    """Yield the violations in a result's `content`; the code of each is the id of a rule."""
    if not isinstance(content, list):
        return  # `protocol.result_shape` reports it
    for number, block in enumerate(content):
        at = ("content", number)
        if not isinstance(block, dict):
            yield Violation(pointer(*at), "the block is not an object", "content.block_shape")
            continue
        kind = block.get("type")
        check = _CHECKS.get(kind) if isinstance(kind, str) else None
        if check is None:
            message = f"no revision of MCP has blocks of type {json.dumps(kind)[:60]}"
            yield Violation(pointer(*at, "type"), message, "content.block_type")
        else:
            yield from check(block, at)


def _text(block: dict[str, Any], at: tuple[str | int, ...]) -> Iterator[Violation]:
    yield from _strings(block, at, "text")


def _media(block: dict[str, Any], at: tuple[str | int, ...]) -> Iterator[Violation]:
    yield from _strings(block, at, "data", "mimeType")
    kind, data = block.get("mimeType"), block.get("data")
    if isinstance(kind, str):
        yield from _mime(kind, at, family=f"{block['type']}/")
    if isinstance(data, str):
        yield from _base64(data, (*at, "data"), kind if isinstance(kind, str) else "")


def _embedded(block: dict[str, Any], at: tuple[str | int, ...]) -> Iterator[Violation]:
    inside = block.get("resource")
    at = (*at, "resource")
    if not isinstance(inside, dict):
        yield Violation(pointer(*at), "resource is missing or not an object", "content.block_shape")
        return
    yield from _strings(inside, at, "uri")
    given = [name for name in ("text", "blob") if name in inside]
    if len(given) != 1:
        message = "the resource has neither text nor blob"
        if given:
            message = "the resource has both text and blob"
        yield Violation(pointer(*at), message, "content.block_shape")
    yield from _strings(inside, at, *given)
    kind = inside.get("mimeType")
    if isinstance(kind, str):
        yield from _mime(kind, at)
    if isinstance(inside.get("blob"), str):
        kind = kind if isinstance(kind, str) else ""
        yield from _base64(inside["blob"], (*at, "blob"), kind)


def _link(block: dict[str, Any], at: tuple[str | int, ...]) -> Iterator[Violation]:
    yield from _strings(block, at, "uri", "name")
    if isinstance(block.get("mimeType"), str):
        yield from _mime(block["mimeType"], at)


_CHECKS: Final[
    Mapping[str, Callable[[dict[str, Any], tuple[str | int, ...]], Iterator[Violation]]]
] = {"text": _text, "image": _media, "audio": _media, "resource": _embedded, "resource_link": _link}


def _strings(value: dict[str, Any], at: tuple[str | int, ...], *names: str) -> Iterator[Violation]:
    for name in names:
        if not isinstance(value.get(name), str):
            message = f"{name} is {'not a string' if name in value else 'missing'}"
            yield Violation(pointer(*at, name), message, "content.block_shape")


def _mime(kind: str, at: tuple[str | int, ...], family: str = "") -> Iterator[Violation]:
    if not _MIME.match(kind):
        yield Violation(pointer(*at, "mimeType"), "is not a MIME type", "content.mime_type", kind)
    elif family and not kind.lower().startswith(family) and kind != "application/octet-stream":
        message = f"the MIME type of {family[:-1]} data does not begin with {family}"
        yield Violation(pointer(*at, "mimeType"), message, "content.mime_type", kind)


def _base64(data: str, at: tuple[str | int, ...], kind: str) -> Iterator[Violation]:
    if not data:
        yield Violation(pointer(*at), "the data is empty", "content.base64")
        return
    if data.startswith("data:"):
        message = "is a data: URL, not base64"
    elif not _BASE64.match(data):
        url_safe = _BASE64_URL.match(data)
        message = "is base64url, not base64" if url_safe else "is not base64"
    elif len(data) % 4:
        message = f"has {len(data)} base64 characters, which is not a multiple of 4"
    else:
        yield from _magic(data, at, kind)
        return
    yield Violation(pointer(*at), message, "content.base64", data[:60])


def _magic(data: str, at: tuple[str | int, ...], kind: str) -> Iterator[Violation]:
    """Yield a violation if the data is a file whose type differs from the declared type."""
    head = binascii.a2b_base64(data[:64])
    declared = kind.partition(";")[0].strip().lower()
    standard = {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg"}.get(declared, declared)
    for magic, actual in _MAGIC:
        if head.startswith(magic) and standard in {name for _, name in _MAGIC} - {actual}:
            message = f"is {actual}, not {declared}"
            yield Violation(pointer(*at), message, "content.mime_type", declared)
