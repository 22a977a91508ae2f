"""Fixtures: stores and their pages, made once, and a Chromium to open them."""

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcptally.output.html import report
from tests.output.html import stores
from tests.shared_folder import shared_folder

WAIT = 60_000
"""Milliseconds that a step may take on a machine under load."""


@pytest.fixture(scope="session")
def hostile_store(tmp_path_factory) -> Path:
    return shared_folder(tmp_path_factory, "hostile", stores.attacked) / "store"


@pytest.fixture(scope="session")
def calm_store(tmp_path_factory) -> Path:
    return shared_folder(tmp_path_factory, "calm", stores.calm) / "store"


@pytest.fixture(scope="session")
def worse_store(tmp_path_factory) -> Path:
    make = functools.partial(stores.calm, crashes=20)
    return shared_folder(tmp_path_factory, "worse", make) / "store"


@pytest.fixture(scope="session")
def large_store(tmp_path_factory) -> Path:
    make = functools.partial(stores.many, tools=120)
    return shared_folder(tmp_path_factory, "large", make) / "store"


@pytest.fixture(scope="session")
def pages(
    tmp_path_factory, sample_store, hostile_store, calm_store, worse_store, large_store
) -> dict[str, Path]:
    """Name → file of the page."""
    wanted = {
        "sample": (sample_store, None),
        "hostile": (hostile_store, None),
        "calm": (calm_store, None),
        "worse": (worse_store, calm_store),
        "large": (large_store, None),
    }

    def write_pages(folder: Path) -> None:
        for name, (store, base) in wanted.items():
            report(store, folder / f"{name}.html", base=base)

    folder = shared_folder(tmp_path_factory, "pages", write_pages)
    return {name: folder / f"{name}.html" for name in wanted}


def chromium() -> str | None:
    """The path of a Chromium, preferably the headless one, which takes half the time."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


# Scope "package": its event loop disturbs tests of other packages while it is open.
@pytest.fixture(scope="package")
def browser() -> Iterator[object]:
    from playwright import sync_api

    # The sandbox of Chromium does not work for root.
    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium(), args=arguments, timeout=120_000)
        yield opened
        opened.close()


class Activity:
    """The requests, console messages and dialogs of an open page."""

    def __init__(self, page: Any) -> None:
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.dialogs: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))


@pytest.fixture
def opened(browser) -> Iterator[Callable[..., Any]]:
    """Opens an address in a context of its own; returns the page with its activity."""
    contexts = []

    def open_address(address: str, **options: Any) -> tuple[Any, Activity]:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(WAIT)
        page = context.new_page()
        activity = Activity(page)
        page.goto(address, wait_until="load", timeout=WAIT)
        return page, activity

    yield open_address
    for context in contexts:
        context.close()


@pytest.fixture(scope="package")
def axe() -> str:
    folder = os.environ.get("MCPTALLY_SERVERS", "/nowhere")
    script = Path(folder) / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        pytest.skip("no axe-core: bash .ci/servers-browser.sh FOLDER, MCPTALLY_SERVERS=FOLDER")
    return script.read_text(encoding="utf-8")


def violations_of(page: Any, axe: str) -> list[str]:
    """Return what axe objects to; it examines only the first rows of a long table."""
    page.evaluate(axe)
    context = "{exclude: [['tbody tr:nth-child(n + 7)']]}"
    found = page.evaluate(f"axe.run({context}, {{resultTypes: ['violations']}})")
    assert found["passes"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
    ]
