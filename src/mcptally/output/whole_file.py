"""Writes a file for others whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from mcptally.errors import UsageError

T = TypeVar("T")


def whole_file(path: Path, write: Callable[[BinaryIO], T]) -> T:
    """Write a file that is there whole or not at all, and return what `write` returns.

    The file is written under another name beside the target, which it then replaces; what there is
    of it is removed where that fails. A link stays a link. A pipe or a device is written into.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                return write(file)
        whole = path.resolve()
        part = whole.with_name(f"{path.name}.part")
        try:
            part.touch(mode=0o600)
            with part.open("wb") as file:
                done = write(file)
            os.replace(part, whole)  # noqa: PTH105  (the atomic one, by its name)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    return done
