"""Recorded traffic of hundreds of MB, which is too large for this repository.

The environment variable `MCPTALLY_CORPUS` names the folder that has it, in a folder `traffic`.
"""

import os
import sys
from pathlib import Path
from typing import Final

SETTING: Final = "MCPTALLY_CORPUS"


def folder() -> Path | None:
    """The folder with the recordings; None if the variable is not set."""
    given = os.environ.get(SETTING)
    path = Path(given or os.devnull, "traffic")
    if given and not path.is_dir():
        sys.exit(f"{SETTING}={given}: there is no folder {path}")
    return path if given else None
