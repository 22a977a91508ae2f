"""Reads the TOML files in this package: rules and word tables.

The build (`hatch_build.py`) also writes their content to `compiled.json` in the same folder, which
loads 50 times as fast. A TOML file that has changed since the build is parsed again.
"""

# Do not import hashlib or pathlib: the recorder starts without them.
import functools
import os
from binascii import crc32
from typing import Any, Final

import msgspec

_PACKAGE: Final = os.path.dirname(__file__)  # noqa: PTH120


class CompiledFile(msgspec.Struct, frozen=True):
    """A TOML file's entry in `compiled.json`."""

    crc32: int
    """Checksum of the file's bytes."""
    table: msgspec.Raw
    """The file's content as JSON."""


def read_toml(name: str) -> dict[str, Any]:
    """Return the content of a TOML file.

    Args:
        name: path within the package `mcptally`, such as `rules/leaks.toml`.
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
    """Return the entries of a folder's `compiled.json` by file name; empty if it is unreadable."""
    try:
        return msgspec.json.decode(_read(folder, "compiled.json"), type=dict[str, CompiledFile])
    except (OSError, msgspec.DecodeError):
        return {}


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(_PACKAGE, folder, name), "rb") as file:  # noqa: PTH118, PTH123
        return file.read()
