"""Takes the pictures of docs/images anew: python -m tests.docs.pictures.

They show `sample_traces`, and the store of a busy server that the tests of `explore` make.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

import mcptally as mt
from tests.docs.blocks import DOCS, ROOT
from tests.output.explore.conftest import serving
from tests.output.explore.stores import busy
from tests.output.html.conftest import chromium

CRASH: Final = (
    "SELECT call_id FROM calls WHERE reason = 'exception_bug' ORDER BY requested_at LIMIT 1"
)
SLOWEST: Final = "SELECT call_id FROM calls ORDER BY latency_ms DESC LIMIT 1"


def take(page: Any, name: str, size: tuple[int, int], top: str = "") -> None:
    """Take a picture of a page, from the first element that `top` selects on."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    if top:
        page.locator(top).first.evaluate("element => element.scrollIntoView({behavior: 'instant'})")
    page.screenshot(path=DOCS / "images" / f"{name}.png")


def main() -> None:
    """Take all pictures."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        shutil.copytree(ROOT / "sample_traces", folder / "sample_traces")
        os.chdir(folder)
        page = driver.chromium.launch(executable_path=chromium(), args=arguments).new_page()
        page.set_default_timeout(120_000)
        mt.score(["sample_traces"], out="samples")
        mt.report("samples", "report.html")
        page.goto((folder / "report.html").as_uri())
        take(page, "report", (1280, 1230))
        take(page, "report-tools", (1280, 900), "#tools")
        page.click("#first .l-tool_failures summary >> nth=0")
        take(page, "report-call", (1280, 1300), "#first .l-tool_failures")
        with serving(Path("samples")) as address:
            page.goto(address)
            take(page, "explore-overview", (1200, 820))
            ((call,),) = mt.open_store("samples").sql(CRASH).fetchall()
            page.goto(f"{address}call/{call}")
            take(page, "explore-call", (1200, 1250))
            page.goto(f"{address}review")
            take(page, "explore-review", (1200, 820))
        busy(folder, sessions=400)
        with serving(Path("store")) as address:
            page.goto(f"{address}tool?server=files&tool=list_dir")
            take(page, "explore-tool", (1200, 1000))
            ((call,),) = mt.open_store("store").sql(SLOWEST).fetchall()
            page.goto(f"{address}call/{call}")
            page.click("text=Its session in order")
            take(page, "explore-session", (1200, 600), f"[id='{call}']")


if __name__ == "__main__":
    main()
