"""Checks XML in result texts: well-formedness, declaration, custom fields and list counts.

Expat parses the XML. A text whose DOCTYPE declares an entity is not checked, because expanding
entities can exhaust memory.
"""

import re
from collections.abc import Iterator
from typing import Any, Final
from xml.parsers import expat

from mcptally.seeds.redmine.list_counts import count_messages
from mcptally.seeds.violation import Violation

IS_XML: Final = re.compile(r"\s*<\?xml[\s?]")
"""Matches the XML declaration at the beginning of a text."""

MAX_CHARS: Final = 2_000_000
"""Maximum length in characters of a text that is checked."""

MAX_DEPTH: Final = 500
"""Maximum nesting of elements in a text that is checked."""

_RAW: Final = re.compile(r"[>\"']")
"""Matches characters that the document requires to be escaped in text, although XML does not."""
_INVALID: Final = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]
_AT_AMPERSAND: Final = (_INVALID, expat.errors.codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY])


class _UncheckedError(Exception):
    """Raised if a text cannot be checked: it declares an entity or is nested too deeply."""


class _Reader:
    """The state of parsing a text: items under the root, custom fields, unescaped characters."""

    def __init__(self, text: str) -> None:
        self.source = text.encode("utf-8", "replace")
        self.stack: list[str] = []
        self.root: dict[str, str] = {}
        self.items = 0
        self.field: list[str] = []
        self.field_violations: list[Violation] = []
        self.raw: tuple[int, int, str] | None = None
        self.declared: tuple[str, str | None] | None = None
        # The text is already decoded, regardless of the encoding in its declaration.
        self.parser = expat.ParserCreate("UTF-8")
        self.parser.buffer_text = False
        self.parser.XmlDeclHandler = self._declaration
        self.parser.EntityDeclHandler = self._entity
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self) -> None:
        self.parser.Parse(self.source, True)  # noqa: FBT003

    @property
    def position(self) -> str:
        return f"line {self.parser.CurrentLineNumber}, column {self.parser.CurrentColumnNumber + 1}"

    def _declaration(self, version: str, encoding: str | None, _: int) -> None:
        self.declared = version, encoding

    def _entity(self, *_: Any) -> None:
        raise _UncheckedError

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise _UncheckedError
        if not self.stack:
            self.root = {"": name, **attributes}
        elif len(self.stack) == 1:
            self.items += 1
        if self.stack and self.stack[-1] == "custom_fields":
            self.field = []
            if name != "field":
                self._add_field_violation(f"custom_fields holds <{name[:40]}>, not <field>")
        elif self.stack[-2:] == ["custom_fields", "field"]:
            self.field.append(name)
        self.stack.append(name)

    def _end(self, name: str) -> None:
        self.stack.pop()
        ends_field = name == "field" and self.stack[-1:] == ["custom_fields"]
        if ends_field and self.field != ["id", "name", "value"]:
            members = ", ".join(self.field)[:80] or "nothing"
            self._add_field_violation(f"a custom field holds {members} instead of id, name, value")

    def _add_field_violation(self, problem: str) -> None:
        message = f"{problem} ({self.position})"
        self.field_violations.append(Violation("", message, "content.xml_custom_fields"))

    def _characters(self, data: str) -> None:
        if self.raw is None and _RAW.search(data):
            # Expat reports an escaped character separately, at the position of its `&`.
            start = self.parser.CurrentByteIndex
            if self.source[start : start + 1] != b"&":
                line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber
                self.raw = line, column + 1, data


def check(text: str) -> Iterator[Violation]:
    """Yield the violations in an XML text; their codes are rule ids, and their paths are empty."""
    if len(text) > MAX_CHARS:
        return
    reader = _Reader(text)
    try:
        reader.read()
    except _UncheckedError:
        return
    except expat.ExpatError as error:
        yield _not_well_formed(text, error)
    yield from _check_declaration(reader)
    yield from reader.field_violations[:20]
    if reader.raw:
        line, column, data = reader.raw
        mark = _RAW.search(data)
        message = f"an unescaped {mark[0] if mark else ''} in text (line {line}, column {column})"
        yield Violation("", message, "content.xml_raw_character", data[:80])
    if not reader.stack and reader.root:
        for message in count_messages(reader.root, reader.items):
            yield Violation("", message, "content.list_counts")


def _not_well_formed(text: str, error: expat.ExpatError) -> Violation:
    lines = text.split("\n")
    line = lines[error.lineno - 1] if 0 < error.lineno <= len(lines) else ""
    column = error.offset
    if error.code in _AT_AMPERSAND and "&" in line[max(0, column - 40) : column + 1]:
        # Expat reports the position after the `&`, where the invalid entity name begins.
        column = line.rindex("&", 0, column + 1)
        problem, rule = "an unescaped &", "content.xml_unescaped"
    elif error.code == _INVALID and line[max(0, column - 1) : column + 1].startswith("<"):
        column -= 1
        problem, rule = "an unescaped <", "content.xml_unescaped"
    elif error.code == _INVALID and line[column : column + 1] == "<":
        problem, rule = "an unescaped <", "content.xml_unescaped"
    else:
        problem = expat.errors.messages.get(error.code, "not well-formed")
        rule = "content.xml_malformed"
    message = f"{problem} (line {error.lineno}, column {column + 1})"
    return Violation("", message, rule, line[column : column + 40])


def _check_declaration(reader: _Reader) -> Iterator[Violation]:
    if reader.declared is None:
        return
    version, encoding = reader.declared
    if version != "1.0":
        message = f"declares version {version[:20]}; parsers support 1.0"
        yield Violation("", message, "content.xml_version")
    if encoding is None:
        message = "declares no encoding; the document asks for UTF-8"
        yield Violation("", message, "content.xml_encoding")
    elif encoding.upper() != "UTF-8":
        message = f"declares the encoding {encoding[:40]}, but a text in JSON is UTF-8"
        yield Violation("", message, "content.xml_encoding")
