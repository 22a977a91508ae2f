"""Fixtures: stores and their pages, made once, and a Chromium to open them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcptally.output.html import report
from tests.output.html import stores


@pytest.fixture(scope="session")
def hostile_store(tmp_path_factory) -> Path:
    return stores.attacked(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def calm_store(tmp_path_factory) -> Path:
    return stores.calm(tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="session")
def worse_store(tmp_path_factory) -> Path:
    return stores.calm(tmp_path_factory.mktemp("worse"), crashes=20)


@pytest.fixture(scope="session")
def large_store(tmp_path_factory) -> Path:
    return stores.many(tmp_path_factory.mktemp("large"), 500)


@pytest.fixture(scope="session")
def pages(
    tmp_path_factory, sample_store, hostile_store, calm_store, worse_store, large_store
) -> dict[str, Path]:
    """Name → file of the page."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "sample": (sample_store, None),
        "hostile": (hostile_store, None),
        "calm": (calm_store, None),
        "worse": (worse_store, calm_store),
        "large": (large_store, None),
    }
    for name, (store, base) in made.items():
        report(store, folder / f"{name}.html", base=base)
    return {name: folder / f"{name}.html" for name in made}


# Scope "package": its event loop disturbs tests of other packages while it is open.
@pytest.fixture(scope="package")
def browser() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here")
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on PATH: bash .ci/servers-browser.sh FOLDER")
    # The sandbox of Chromium does not work for root.
    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=arguments, timeout=120_000)
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def axe() -> str:
    folder = os.environ.get("MCPTALLY_SERVERS", "/nowhere")
    script = Path(folder) / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        pytest.skip("no axe-core: bash .ci/servers-browser.sh FOLDER, MCPTALLY_SERVERS=FOLDER")
    return script.read_text(encoding="utf-8")
