"""XML in the text of results: well-formed, declared as it should be, lists that count right.

Read by expat, without a document type: entities are what a hostile text would exhaust memory
with, so a DOCTYPE that declares any ends the reading there, unjudged.
"""

import re
from collections.abc import Iterator
from typing import Any, Final
from xml.parsers import expat

from mcptally.seeds.redmine.list_counts import counted
from mcptally.seeds.violation import Violation

IS_XML: Final = re.compile(r"\s*<\?xml[\s?]")
"""How a text begins that says it is XML."""

MAX_CHARS: Final = 2_000_000
"""Characters beyond which a text is data, not a report: it is not read."""

MAX_DEPTH: Final = 500
"""Elements within each other beyond which a text is not read."""

_RAW: Final = re.compile(r"[>\"']")
"""Characters that the seed wants escaped in text, though XML does not."""
_INVALID: Final = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]
_AT_AMPERSAND: Final = (_INVALID, expat.errors.codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY])


class _UnjudgedError(Exception):
    """What this module does not read on purpose."""


class _Reader:
    """Follows one document: lists at the root, custom fields, raw characters in text."""

    def __init__(self, text: str) -> None:
        self.source = text.encode("utf-8", "replace")
        self.stack: list[str] = []
        self.root: dict[str, str] = {}
        self.items = 0
        self.field: list[str] = []
        self.found: list[Violation] = []
        self.raw: tuple[int, int, str] | None = None
        self.declared: tuple[str, str | None] | None = None
        # The text was decoded long ago, whatever its declaration says.
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
    def place(self) -> str:
        return f"line {self.parser.CurrentLineNumber}, column {self.parser.CurrentColumnNumber + 1}"

    def _declaration(self, version: str, encoding: str | None, _: int) -> None:
        self.declared = version, encoding

    def _entity(self, *_: Any) -> None:
        raise _UnjudgedError

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise _UnjudgedError
        if not self.stack:
            self.root = {"": name, **attributes}
        elif len(self.stack) == 1:
            self.items += 1
        if self.stack and self.stack[-1] == "custom_fields":
            self.field = []
            if name != "field":
                self._custom(f"custom_fields holds <{name[:40]}>, not <field>")
        elif self.stack[-2:] == ["custom_fields", "field"]:
            self.field.append(name)
        self.stack.append(name)

    def _end(self, name: str) -> None:
        self.stack.pop()
        ends_field = name == "field" and self.stack[-1:] == ["custom_fields"]
        if ends_field and self.field != ["id", "name", "value"]:
            told = ", ".join(self.field)[:80] or "nothing"
            self._custom(f"a custom field holds {told}; id, name, value is what it holds")

    def _custom(self, words: str) -> None:
        self.found.append(Violation("", f"{words} ({self.place})", "content.xml_custom_fields"))

    def _characters(self, data: str) -> None:
        if self.raw is None and _RAW.search(data):
            # Escaped characters come alone and stand as &…; at this place of the source.
            at = self.parser.CurrentByteIndex
            if self.source[at : at + 1] != b"&":
                line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber
                self.raw = line, column + 1, data


def check(text: str) -> Iterator[Violation]:
    """What is wrong with a text that says it is XML; the code of a breach is the id of the rule."""
    if len(text) > MAX_CHARS:
        return
    reader = _Reader(text)
    try:
        reader.read()
    except _UnjudgedError:
        return
    except expat.ExpatError as error:
        yield _broken(text, error)
    yield from _declared(reader)
    yield from reader.found[:20]
    if reader.raw:
        line, column, data = reader.raw
        mark = _RAW.search(data)
        words = f"a raw {mark[0] if mark else ''} in text (line {line}, column {column})"
        yield Violation("", words, "content.xml_raw_character", data[:80])
    if not reader.stack and reader.root:
        for words in counted(reader.root, reader.items):
            yield Violation("", words, "content.list_counts")


def _broken(text: str, error: expat.ExpatError) -> Violation:
    lines = text.split("\n")
    line = lines[error.lineno - 1] if 0 < error.lineno <= len(lines) else ""
    column = error.offset
    if error.code in _AT_AMPERSAND and "&" in line[max(0, column - 40) : column + 1]:
        # Expat stops where the name of an entity should go on.
        column = line.rindex("&", 0, column + 1)
        words, rule = "an unescaped &", "content.xml_unescaped"
    elif error.code == _INVALID and line[max(0, column - 1) : column + 1].startswith("<"):
        column -= 1
        words, rule = "an unescaped <", "content.xml_unescaped"
    elif error.code == _INVALID and line[column : column + 1] == "<":
        words, rule = "an unescaped <", "content.xml_unescaped"
    else:
        words, rule = (
            expat.errors.messages.get(error.code, "not well-formed"),
            "content.xml_malformed",
        )
    said = f"{words} (line {error.lineno}, column {column + 1})"
    return Violation("", said, rule, line[column : column + 40])


def _declared(reader: _Reader) -> Iterator[Violation]:
    if reader.declared is None:
        return
    version, encoding = reader.declared
    if version != "1.0":
        words = f"declares version {version[:20]}; readers know 1.0"
        yield Violation("", words, "content.xml_version")
    if encoding is not None and encoding.upper() != "UTF-8":
        words = f"declares {encoding[:40]}; inside JSON it is UTF-8"
        yield Violation("", words, "content.xml_encoding")
