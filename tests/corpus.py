"""The corpus: recorded traffic, labels and cases of other programs, too large for this repository.

`MCPTALLY_CORPUS=FOLDER` says where it lies; without the setting it is `../shared`, if there is one,
and `MCPTALLY_CORPUS=` means none.
Its folders: `traffic` (transcripts of real servers), `labels` (answers that people judged), `cases`
(inputs with the answers of the programs that the seeds come from), `seeds` (those documents).
Without it the tests that need it are skipped; `sample_traces` and made data serve all others.
"""

import os
from pathlib import Path
from typing import Final

import pytest

SETTING: Final = "MCPTALLY_CORPUS"
"""Environment variable with the folder of the corpus."""
ROOT: Final = Path(__file__).resolve().parents[1]
SAMPLES: Final = ROOT / "sample_traces"


def folder() -> Path | None:
    """The folder of the corpus; None if there is none.

    Raises:
        pytest.UsageError: the setting names a folder that is not there.
    """
    given = os.environ.get(SETTING)
    if given == "":
        return None
    path = ROOT.parent / "shared" if given is None else Path(given)
    if path.is_dir():
        return path
    if given is not None:
        raise pytest.UsageError(f"{SETTING}={given}: there is no such folder")
    return None


def find(name: str) -> Path | None:
    """A file or folder of the corpus; None if it is not there."""
    path = (folder() or Path(os.devnull)) / name
    return path if path.exists() else None


def missing(name: str) -> str:
    """Why a test that needs a file or folder of the corpus is skipped."""
    return f"needs {name} of the corpus; {SETTING} names its folder (docs/CONTRIBUTING.md)"


def need(name: str) -> Path:
    """A file or folder of the corpus; the test or fixture that calls this is skipped without."""
    if (path := find(name)) is None:
        pytest.skip(missing(name))
    return path


def traffic() -> list[Path]:
    """The recordings of the corpus, sorted by name; empty without it."""
    path = find("traffic")
    return sorted(path.glob("*.jsonl*")) if path else []


def recordings() -> list[Path]:
    """The recordings of the corpus; without it those of `sample_traces`, also of real servers."""
    return traffic() or sorted(SAMPLES.glob("*.jsonl*"))
