"""Reads the TOML files of this program: the rules and the word tables.

The build (`hatch_build.py`) writes their content to `compiled.json` beside them, which is read 50
times as fast. It is used instead of files that have not changed since.
"""

# Do not import hashlib or pathlib: the recorder starts without them.
import functools
import os
from binascii import crc32
from typing import Any, Final

import msgspec

_PACKAGE: Final = os.path.dirname(__file__)  # noqa: PTH120


class CompiledFile(msgspec.Struct, frozen=True):
    """The entry for a TOML file in `compiled.json`."""

    crc32: int
    """Checksum of the file's bytes."""
    table: msgspec.Raw
    """The file's content as JSON."""


def read_toml(name: str) -> dict[str, Any]:
    """Return a parsed TOML file.

    Args:
        name: folder and file in the package `mcptally`, as in `rules/leaks.toml`.
    """
    folder, file = name.split("/")
    data = _read(folder, file)
    found = compiled_files(folder).get(file)
    if found is not None and found.crc32 == crc32(data):
        table: dict[str, Any] = msgspec.json.decode(found.table)
        return table
    import tomllib  # noqa: PLC0415  (seldom needed)

    return tomllib.loads(data.decode())


@functools.cache
def compiled_files(folder: str) -> dict[str, CompiledFile]:
    """Return the files in a folder's `compiled.json` by name; empty if unreadable."""
    try:
        return msgspec.json.decode(_read(folder, "compiled.json"), type=dict[str, CompiledFile])
    except (OSError, msgspec.DecodeError):
        return {}


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(_PACKAGE, folder, name), "rb") as file:  # noqa: PTH118, PTH123
        return file.read()
