"""Recorded traffic of hundreds of MB, which is too large for this repository.

It is in the folder `traffic` of the folder that the environment variable `MCPTALLY_CORPUS` names.
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
