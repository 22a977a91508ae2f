"""Writes a Markdown table; markup, links and images in cells are escaped."""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

import pyarrow as pa

from mcptally.output.formats.written import Written
from mcptally.redaction.display import clean_line
from mcptally.tables.values import cell_of

_MARKUP: Final = re.compile(r"[\\`*\[\]|~]")
_LINK: Final = re.compile(r":(?=//)|(?<=www)\.|@", re.IGNORECASE)
"""Matches characters that must be escaped to keep Markdown renderers from linking addresses."""


def write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> Written:
    """Write a header and all rows."""
    file.write(_line(map(_escaped, schema.names)) + _line("---" for _ in schema.names))
    for batch in batches:
        rows = batch.to_pylist()
        file.writelines(_line(_escaped(cell_of(n, row)) for n in schema.names) for row in rows)
    return Written()


def _line(cells: Iterable[str]) -> bytes:
    return f"| {' | '.join(cells)} |\n".encode()


def _escaped(text: str) -> str:
    text = clean_line(text).replace("&", "&amp;").replace("<", "&lt;")
    text = _LINK.sub(lambda found: f"&#{ord(found[0])};", text)
    return _MARKUP.sub(lambda found: f"\\{found[0]}", text)
