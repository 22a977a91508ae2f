"""Parses tool results into content blocks, texts and JSON objects, with their JSON Pointers."""

from collections.abc import Iterator
from typing import Any

import msgspec

from mcptally.seeds.violation import text_pointer
from mcptally.wire.json_text import json_object, json_value


class ToolResult(msgspec.Struct, frozen=True):
    """The parsed result of a call to the tool `tool`."""

    tool: str
    content: Any
    structured: Any
    is_error: Any
    expected_xml: str | None = None
    """Why the first text needs an XML declaration that it lacks; see the module `expected_xml`."""

    @classmethod
    def parsed(
        cls, tool: str, response: str, expected_xml: str | None = None
    ) -> "ToolResult | None":
        """Parse a result's JSON text; return None if it is not a JSON object."""
        value = json_value(response)
        if not isinstance(value, dict):
            return None
        return cls(
            tool,
            value.get("content"),
            value.get("structuredContent"),
            value.get("isError"),
            expected_xml,
        )

    def blocks(self) -> list[Any]:
        """Return the content blocks, or an empty list if `content` is not an array."""
        return self.content if isinstance(self.content, list) else []

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield the position in `content` and the text of each text block."""
        for number, block in enumerate(self.blocks()):
            text = block.get("text") if isinstance(block, dict) else None
            if isinstance(text, str) and block.get("type") == "text":
                yield number, text

    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each JSON object in the result, with its JSON Pointer.

        These are structuredContent and the texts that are JSON objects, except a text that repeats
        structuredContent.
        """
        structured = None
        if isinstance(self.structured, dict):
            structured = self.structured
            yield "/structuredContent", structured
        for number, text in self.texts():
            value = json_object(text)
            if value is not None and value != structured:
                yield text_pointer(number), value
