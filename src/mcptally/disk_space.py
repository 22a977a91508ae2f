"""Detects errors that a full disk has caused, and flushes files to disk."""

import errno
import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_NUMBERS: Final = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_LIBRARIES: Final = frozenset({"polars", "pyarrow", "duckdb", "_duckdb", "pyo3_runtime", "sqlite3"})
"""Libraries whose exceptions often do not mention that a full disk was the cause."""
_NEARLY_FULL: Final = 1 << 20
"""Free bytes below which a full disk is assumed to have caused an error from one of `_LIBRARIES`.
"""


def is_full(error: BaseException, *places: "str | Path") -> bool:
    """Return whether an error was probably caused by a full disk.

    Args:
        error: any exception.
        places: paths that the failed operation may have written to; they need not exist.
    """
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    if any(os.strerror(number) in str(error) for number in _NUMBERS):
        return True
    if getattr(error, "sqlite_errorname", None) == "SQLITE_FULL":
        return True
    is_from_library = type(error).__module__.partition(".")[0] in _LIBRARIES
    return is_from_library and full_place(places) is not None


def full_place(places: "Iterable[str | Path]") -> str | None:
    """Return the first of some paths that is on a disk with almost no free space, or None."""
    from pathlib import Path  # noqa: PLC0415  (takes 5 % of the recorder's start-up time)

    for place in places:
        path = Path(place).absolute()
        try:
            folder = next(each for each in (path, *path.parents) if each.exists())
            if shutil.disk_usage(folder).free < _NEARLY_FULL:
                return str(place)
        except (OSError, ValueError):  # the text is not a valid path
            continue
    return None


def sync(path: "Path") -> None:
    """Flush the content of a file, or the entries of a folder, to disk.

    Some network file systems cannot do this for folders, which is ignored.
    """
    is_folder = path.is_dir()
    file = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(file)
    except OSError as error:
        if not is_folder or error.errno != errno.EINVAL:
            raise
    finally:
        os.close(file)
