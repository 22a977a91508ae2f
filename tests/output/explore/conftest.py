"""Fixtures: a server of `explore` per store, and a Chromium to open its pages."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.output.explore.stores import busy
from tests.output.html.conftest import axe, browser, hostile_store, opened
from tests.review.conftest import blind_store
from tests.shared_folder import shared_folder

__all__ = ["axe", "blind_store", "browser", "hostile_store", "opened"]


@contextlib.contextmanager
def serving(store: Path, *options: str) -> Iterator[str]:
    """The address of a server for the store."""
    command = [sys.executable, "-I", "-m", "mcptally", "explore", str(store), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


@pytest.fixture(scope="session")
def busy_store(tmp_path_factory) -> Path:
    return shared_folder(tmp_path_factory, "busy", busy) / "store"


@pytest.fixture(scope="package")
def unwritten(tmp_path_factory) -> Path:
    """The answers file of the store `busy` at `addresses`; no test writes answers to it."""
    return tmp_path_factory.mktemp("unwritten") / "answers.jsonl"


@pytest.fixture(scope="package")
def addresses(busy_store, hostile_store, unwritten) -> Iterator[dict[str, str]]:
    """Maps the name of a store to the address of its first page."""
    with contextlib.ExitStack() as stack:
        yield {
            "busy": stack.enter_context(serving(busy_store, "--reviews", str(unwritten))),
            "hostile": stack.enter_context(serving(hostile_store)),
        }
