"""Runs the notebooks from top to bottom, and compares the outputs that must not change.

python -m tests.docs.notebooks      runs all of them and keeps their outputs
"""

import base64
import contextlib
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jupyter_client.manager import AsyncKernelManager
    from nbformat import NotebookNode

NOTEBOOKS: Final = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@contextlib.contextmanager
def kernel() -> Iterator["AsyncKernelManager"]:
    """Start a kernel for several notebooks, which import the same packages."""
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync

    manager = AsyncKernelManager()
    run_sync(manager.start_kernel)(cwd=str(NOTEBOOKS[0].parent))
    try:
        yield manager
    finally:
        run_sync(manager.shutdown_kernel)(now=True)


def run(path: Path, manager: "AsyncKernelManager") -> "NotebookNode":
    """Run a notebook in a kernel, without the variables of earlier ones, and return it."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    resources = {"metadata": {"path": str(path.parent)}}
    # The default limits (60 s for a kernel to start, 4 s for a cell's last output) are too short on
    # a loaded machine: late output would be left out without a warning.
    patience = {"timeout": 600, "startup_timeout": 300, "iopub_timeout": 120}
    client = NotebookClient(notebook, km=manager, resources=resources, **patience)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    del notebook.cells[0]
    for cell in notebook.cells:
        # The times at which cells ran would differ in each run.
        cell.metadata.pop("execution", None)
    return notebook


def outputs(notebook: "NotebookNode") -> list[tuple[str, ...]]:
    """Return a tuple per output of the cells: its kinds, words and numbers.

    Output that may differ between machines is left out: table borders of a polars version, pixels
    of a picture, durations.
    """
    return [
        (*sorted(data), *map(steady, re.findall(r"[\w.%/:-]+", data["text/plain"])))
        for data in _data(notebook)
    ]


def pictures(notebook: "NotebookNode") -> list[tuple[int, int]]:
    """Return width and height of every picture in pixels, which differ slightly between fonts."""
    pngs = [data["image/png"] for data in _data(notebook) if "image/png" in data]
    return [struct.unpack(">II", base64.b64decode(png)[16:24]) for png in pngs]


def _data(notebook: "NotebookNode") -> list[dict[str, str]]:
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.get("data", {"text/plain": output.get("text", "")}) for output in found]


def steady(word: str) -> str:
    """Return a word unchanged, and a number with as many digits as are equal on all machines."""
    try:
        number = float(word)
    except ValueError:
        return word
    return "0" if abs(number) < 1e-9 else f"{number:.4g}"


def main() -> int:
    """Run every notebook and keep its outputs."""
    import nbformat

    with kernel() as manager:
        for path in NOTEBOOKS:
            nbformat.write(run(path, manager), path)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
