"""Reads the TOML files of this package, which contain rules and word tables.

The build (`hatch_build.py`) also writes their content to `compiled.json` in the same folder, which
loads 50 times as fast. A TOML file that has changed since the build is parsed again.
"""

# Don't import hashlib or pathlib, because the recorder starts without them.
import functools
import os
from binascii import crc32
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from mcptally.errors import UsageError, near, reason

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T", bound=msgspec.Struct)

_PACKAGE: Final = os.path.dirname(__file__)  # noqa: PTH120


class CompiledFile(msgspec.Struct, frozen=True):
    """An entry in `compiled.json`, for one TOML file."""

    crc32: int
    """Checksum of the file's bytes."""
    table: msgspec.Raw
    """The content of the file as JSON."""


def read_toml(name: str) -> dict[str, Any]:
    """Return the content of a TOML file of this package.

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
    """Map the names of a folder's TOML files to their entries in `compiled.json`.

    The result is empty if `compiled.json` cannot be read.
    """
    try:
        return msgspec.json.decode(_read(folder, "compiled.json"), type=dict[str, CompiledFile])
    except (OSError, msgspec.DecodeError):
        return {}


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(_PACKAGE, folder, name), "rb") as file:  # noqa: PTH118, PTH123
        return file.read()


def user_rows(path: "Path", name: str, cls: type[T]) -> list[T]:
    """Read the `[[name]]` tables of a user's TOML file, or the items of the list `name` in JSON.

    Raises:
        UsageError: the file cannot be read, has no such tables, or a table does not fit `cls`.
    """
    import json  # noqa: PLC0415  (the recorder starts without it)
    import tomllib  # noqa: PLC0415

    is_json = path.suffix == ".json"
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if is_json else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not {'JSON' if is_json else 'TOML'}: {error}") from error
    rows = table.get(name) if isinstance(table, dict) else table
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{path}: contains no {name}; write tables [[{name}]]")
    return [_user_row(row, cls, f"{path}: {name} {n}") for n, row in enumerate(rows, start=1)]


def _user_row(row: Any, cls: type[T], where: str) -> T:
    fields = cls.__struct_encode_fields__
    if isinstance(row, dict):
        for key in row.keys() - set(fields):
            raise UsageError(f"{where}: unknown field {key!r}{near(key, fields)}")
    try:
        return msgspec.convert(row, cls)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from error
