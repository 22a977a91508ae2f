"""Read the test suites for validation that `.ci/servers-oracle.sh` fetches."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest


def members(name: str, inside: str) -> dict[str, Any]:
    """Return the JSON files in a source distribution whose path contains `inside`, by path. Skips
    the calling test module if there is no such file.
    """
    folder = os.environ.get("MCPTALLY_SERVERS")
    path = Path(folder or ".") / "oracle" / f"{name}.tar.gz"
    if folder is None or not path.is_file():
        pytest.skip(
            f"no {path.name}: bash .ci/servers-oracle.sh FOLDER, MCPTALLY_SERVERS=FOLDER",
            allow_module_level=True,
        )
    with tarfile.open(path) as archive:
        return {
            member.name: json.loads(file.read())
            for member in archive
            if inside in member.name and member.name.endswith(".json")
            if (file := archive.extractfile(member)) is not None
        }
