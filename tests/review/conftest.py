"""A store for a second reviewer, in the terminal and in the browser."""

from pathlib import Path

import pytest

from tests.review import archives
from tests.shared_folder import shared_folder


@pytest.fixture(scope="session")
def blind_store(tmp_path_factory) -> Path:
    return shared_folder(tmp_path_factory, "blind", archives.blind) / "store"
