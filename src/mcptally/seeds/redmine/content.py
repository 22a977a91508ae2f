"""Content of tool results, block by block: the Redmine seed, as document and as program.

`document` and `program` judge one result exactly as the seed's listing and its program do; where
they differ is in docs/explanation/seed-redmine.md. `blocks` judges by what MCP means a block to be,
and is what findings are made from.
"""

import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from mcptally.seeds.violation import Violation, pointer
from mcptally.wire.nesting import MAX_DEPTH, is_too_deep, is_value_too_deep, with_stack_room

Reading = Literal["document", "program"]

# What the two originals say where a check fails: the matcher that stops them.
HAS: Final = "expect(received).toHaveProperty(path)"
IS: Final = "expect(received).toBe(expected) // Object.is equality"
IN: Final = "expect(received).toContain(expected) // indexOf"
_TOO_DEEP: Final = f"the result is nested deeper than {MAX_DEPTH} levels, the most that is judged"
MORE: Final = "expect(received).toBeGreaterThan(expected)"


def document(result: Any) -> list[Violation]:
    """What the document's listing finds wrong with a tool result; its own run ends at the first."""
    return list(_judged(result, _document_block))


def program(result: Any) -> list[Violation]:
    """What the program finds wrong with a tool result; its own run ends at the first."""
    return list(_judged(result, _program_block))


READINGS: Final[Mapping[str, Callable[[Any], list[Violation]]]] = {
    "document": document,
    "program": program,
}


@with_stack_room
def assert_tool_response(result: Any, rules: Reading = "program") -> None:
    """Raise an AssertionError that names block and path where a tool result breaks the contract.

    Args:
        result: a CallToolResult as the SDK gives it, as a dict, or as JSON text.
        rules: `program`, what the seed's own helper asserts, or `document`, what its text lists.

    Raises:
        AssertionError: the result breaks the contract.
        ValueError: no such reading, a text that is not JSON, or a result nested too deep.
    """
    if rules not in READINGS:
        raise ValueError(f"no reading is called {rules!r}; there are {', '.join(READINGS)}")
    if breaches := READINGS[rules](_plain(result)):
        lines = [f"{_where(breach.path)}: {breach.message}" for breach in breaches]
        raise AssertionError(
            "\n".join([f"not a tool response ({rules} reading)", *(f"  {line}" for line in lines)])
        )


def _plain(result: Any) -> Any:
    """A result as JSON values."""
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
    """The block and the path, as a person reads them."""
    block = re.match(r"/content/(\d+)", path)
    return f"block {block[1]} at {path}" if block else path or "the result"


def _judged(result: Any, block: Callable[[Any, int], Iterator[Violation]]) -> Iterator[Violation]:
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
            yield from block(item, number)


def _document_block(item: Any, number: int) -> Iterator[Violation]:
    at = ("content", number)
    kind = item["type"]
    if kind not in ("text", "image", "resource"):
        words = f"type {json.dumps(kind)} is none of text, image, resource"
        yield Violation(pointer(*at, "type"), words, IN)
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


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value


# --- what MCP means a block to be: the rows of rules/contracts-content.toml ---

_MIME: Final = re.compile(
    # What was read is not read again another way (*+): blanks could else be split 2**n ways.
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
"""How files of a type begin: what an image says it is against what it is."""


def blocks(content: Any) -> Iterator[Violation]:
    """What is wrong with `content`; the code of a breach is the id of the rule."""
    if not isinstance(content, list):
        return  # `protocol.result_shape` has said it
    for number, block in enumerate(content):
        at = ("content", number)
        if not isinstance(block, dict):
            yield Violation(pointer(*at), "the block is no object", "content.block_shape")
            continue
        kind = block.get("type")
        check = _CHECKS.get(kind) if isinstance(kind, str) else None
        if check is None:
            words = f"no revision of MCP has blocks of type {json.dumps(kind)[:60]}"
            yield Violation(pointer(*at, "type"), words, "content.block_type")
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
        yield Violation(pointer(*at), "resource is missing or no object", "content.block_shape")
        return
    yield from _strings(inside, at, "uri")
    given = [name for name in ("text", "blob") if name in inside]
    if len(given) != 1:
        words = "a resource needs text or blob" if not given else "a resource has text and blob"
        yield Violation(pointer(*at), words, "content.block_shape")
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
] = {
    "text": _text,
    "image": _media,
    "audio": _media,
    "resource": _embedded,
    "resource_link": _link,
}


def _strings(value: dict[str, Any], at: tuple[str | int, ...], *names: str) -> Iterator[Violation]:
    for name in names:
        if not isinstance(value.get(name), str):
            words = f"{name} is {'no string' if name in value else 'missing'}"
            yield Violation(pointer(*at, name), words, "content.block_shape")


def _mime(kind: str, at: tuple[str | int, ...], family: str = "") -> Iterator[Violation]:
    if not _MIME.match(kind):
        yield Violation(pointer(*at, "mimeType"), "is no MIME type", "content.mime_type", kind)
    elif family and not kind.lower().startswith(family) and kind != "application/octet-stream":
        words = f"the MIME type of {family[:-1]} data does not begin with {family}"
        yield Violation(pointer(*at, "mimeType"), words, "content.mime_type", kind)


def _base64(data: str, at: tuple[str | int, ...], kind: str) -> Iterator[Violation]:
    if not data:
        yield Violation(pointer(*at), "there is no data", "content.base64")
        return
    if data.startswith("data:"):
        words = "is a data: URL, not base64"
    elif not _BASE64.match(data):
        url_safe = _BASE64_URL.match(data)
        words = "is base64url, not base64" if url_safe else "is not base64"
    elif len(data) % 4:
        words = f"base64 of {len(data)} characters: no multiple of 4"
    else:
        yield from _magic(data, at, kind)
        return
    yield Violation(pointer(*at), words, "content.base64", data[:60])


def _magic(data: str, at: tuple[str | int, ...], kind: str) -> Iterator[Violation]:
    """Whether the data begins as another type of file than its MIME type says."""
    head = binascii.a2b_base64(data[:64])
    told = kind.partition(";")[0].strip().lower()
    usual = {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg"}.get(told, told)
    for magic, true in _MAGIC:
        if head.startswith(magic) and usual in {name for _, name in _MAGIC} - {true}:
            yield Violation(pointer(*at), f"is {true}, not {told}", "content.mime_type", told)
