"""Writes files atomically: either completely or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from mcptally.disk_space import sync
from mcptally.errors import UsageError, reason

T = TypeVar("T")


def whole_file(path: Path, write: Callable[[BinaryIO], T]) -> T:
    """Write a file atomically and return what `write` returns.

    The content goes to a temporary file in the same folder, which then replaces the target. If
    writing fails, the temporary file is removed. If `path` is a link, the link's target is
    replaced. Pipes and devices are written to directly.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                return write(file)
        target = path.resolve()
        part = target.with_name(f"{path.name}.part")
        try:
            part.touch(mode=0o600)
            with part.open("wb") as file:
                result = write(file)
            sync(part)
            os.replace(part, target)  # noqa: PTH105  (its name says that it is atomic)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {reason(error)}") from error
    return result
