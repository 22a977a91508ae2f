"""A folder that tests change, restored for each test instead of created again.

A store names its transcripts by their paths, so all tests get the folder at the same path.
"""

import shutil
from collections.abc import Callable
from pathlib import Path


class KeptFolder:
    """The files that `make` writes into a folder, made once.

    Args:
        place: an empty folder for the files and their copy.
        make: writes the files into the folder that it is given.
    """

    def __init__(self, place: Path, make: Callable[[Path], object]) -> None:
        self._kept, self._now = place / "kept", place / "now"
        self._now.mkdir()
        make(self._now)
        self._now.rename(self._kept)

    def restore(self) -> Path:
        """Return the folder, with the files as `make` left them."""
        shutil.rmtree(self._now, ignore_errors=True)
        return shutil.copytree(self._kept, self._now)
