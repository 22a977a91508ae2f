"""Lists the formats that can be imported: rows of `formats.toml` with their readers."""

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
"""What a format contains; `formats.toml` explains the words."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A log format of another program."""

    name: str
    title: str
    faithful: Fidelity
    missing: tuple[str, ...] = ()
    """What such a log lacks; it is null in the transcript and in the tables."""
    chronological: bool = True
    """Whether the records are in chronological order."""
    restarts: bool = True
    """Whether an `initialize` starts a new recording, because the log has no session ids."""
    names: tuple[str, ...] = ()
    """Patterns of file names in a folder."""
    may_be_related: bool = False
    """Whether several files may have records about the same calls (its module's `related`)."""
    cut: str = ""
    """Text that occurs in files whose long messages were cut; such a file is `truncated`."""
    looks_for: str
    """The content by which its files are recognised, in words."""
    pattern: str = ""
    object: bool = False
    texts: tuple[tuple[str, ...], ...] = ()
    """What lines look like; see `formats.toml`."""

    @property
    def read(self) -> Callable[[Source], Iterator[Item]]:
        """The reader: the function `read` of the module with the name of the format."""
        reader: Callable[[Source], Iterator[Item]] = self._module().read
        return reader

    def related(self, sources: Sequence[Source]) -> Iterator[Source]:
        """Yield the sources; those with records about the same calls are one source."""
        if not self.may_be_related or len(sources) < 2:
            yield from sources
            return
        related: Callable[[Sequence[Source]], Iterator[Source]] = self._module().related
        yield from related(sources)

    def _module(self) -> Any:
        name = f"mcptally.importers.formats.{self.name.replace('-', '_')}"
        return importlib.import_module(name)

    def matches(self, line: bytes) -> bool:
        """Return whether a line looks like this format."""
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
"""Our own format, which is recognised but not imported."""

LOOKS: Final = tuple({**FORMATS, TRANSCRIPT.name: TRANSCRIPT}[name] for name in _TABLE["order"])
"""The formats of lines; a line has the first one that it matches."""
