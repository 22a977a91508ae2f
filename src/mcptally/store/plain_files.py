"""Checks that a store contains only plain files and folders, and no links or devices."""

import os
from pathlib import Path

from mcptally.errors import StoreError, as_argument


def require_plain_files(folder: Path) -> None:
    """Check that a store contains, at any depth, only plain files and folders.

    The store's own folder may be a symbolic link, because the caller named it.

    Raises:
        StoreError: the store contains a symbolic link, a named pipe, a socket or a device.
    """
    folders = [folder]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except FileNotFoundError:  # a run has just removed the file
            continue
        except OSError as error:
            raise StoreError(f"{error.filename}: cannot be read: {error.strerror}") from error
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                what = "a symbolic link" if entry.is_symlink() else "a pipe, socket or device"
                raise StoreError(
                    f"{entry.path}: is {what}, and a store holds plain files and folders only; "
                    "remove it and rebuild the store with: "
                    f"mcptally score ARCHIVE -o {as_argument(folder)}"
                )
