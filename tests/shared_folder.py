"""A folder of files that no test changes, made once per run and shared by the workers of pytest."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_folder(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """Return the folder with this name. The first worker that asks for it makes it; others wait.

    Args:
        factory: pytest's fixture `tmp_path_factory`.
        name: the folder's name, which no other shared folder has.
        make: writes the files into the folder that it is given.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, complete = base / name, base / f"{name}.complete"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
