"""Lists the formats that can be imported (rows of `formats.toml`), and their readers."""

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.toml_files import read_toml

Fidelity = Literal["frames", "calls", "truncated"]
"""The kind of content in a format's logs; `formats.toml` explains the values."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """Another program's log format."""

    name: str
    title: str
    faithful: Fidelity
    missing: tuple[str, ...] = ()
    """Information that logs in this format lack and that is null in transcripts and tables."""
    chronological: bool = True
    """Whether the records are in chronological order."""
    restarts: bool = True
    """Whether `initialize` starts a new recording, because the log has no session ids."""
    names: tuple[str, ...] = ()
    """Patterns that select files in a folder."""
    may_be_related: bool = False
    """Whether several files may contain records of the same calls (see the module's `related`)."""
    cut: str = ""
    """Text that occurs only in files whose long messages were cut; such a file has the fidelity
    `truncated`."""
    looks_for: str
    """A description of the content that identifies files in this format."""
    pattern: str = ""
    object: bool = False
    texts: tuple[tuple[str, ...], ...] = ()
    """Texts that identify lines; see `formats.toml`."""

    @property
    def read(self) -> Callable[[Source], Iterator[Item]]:
        """The function `read` of the module named after the format."""
        reader: Callable[[Source], Iterator[Item]] = self._module().read
        return reader

    def related(self, sources: Sequence[Source]) -> Iterator[Source]:
        """Yield the sources, after combining sources with records of the same calls."""
        if not self.may_be_related or len(sources) < 2:
            yield from sources
            return
        related: Callable[[Sequence[Source]], Iterator[Source]] = self._module().related
        yield from related(sources)

    def _module(self) -> Any:
        name = f"mcptally.importers.formats.{self.name.replace('-', '_')}"
        return importlib.import_module(name)

    def matches(self, line: bytes) -> bool:
        """Return whether a line looks like a line in this format."""
        if self.pattern:
            return re.match(self.pattern.encode(), line) is not None
        if self.object and line.lstrip()[:1] != b"{":
            return False
        return any(all(text in line for text in texts) for texts in _encoded(self.texts))


@functools.cache
def _encoded(texts: tuple[tuple[str, ...], ...]) -> list[list[bytes]]:
    return [[text.encode() for text in each] for each in texts]


def _formats(rows: list[dict[str, Any]]) -> Iterator[Format]:
    for row in rows:
        if row.pop("built", False):
            row["missing"] = [*_TABLE["missing_if_built"], *row.get("missing", ())]
        yield msgspec.convert(row, Format)


_TABLE: Final = read_toml("importers/formats.toml")

FORMATS: Final[Mapping[str, Format]] = {form.name: form for form in _formats(_TABLE["format"])}

TRANSCRIPT: Final = msgspec.convert(_TABLE["transcript"], Format)
"""Our own format, which is detected but not imported."""

LOOKS: Final = tuple({**FORMATS, TRANSCRIPT.name: TRANSCRIPT}[name] for name in _TABLE["order"])
"""The formats of lines, in the order in which they are tried."""
