"""Runs the notebooks from top to bottom, and compares the outputs that must not change.

python -m tests.docs.notebooks      runs all of them and keeps their outputs
"""

import base64
import re
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nbformat import NotebookNode

NOTEBOOKS: Final = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def run(path: Path) -> "NotebookNode":
    """Run a notebook and return it."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    # The default limits (60 s for a kernel to start, 4 s for a cell's last output) are too short on
    # a loaded machine: late output would be left out without a warning.
    patience = {"timeout": 600, "startup_timeout": 300, "iopub_timeout": 120}
    NotebookClient(notebook, resources=resources, **patience).execute()
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

    for path in NOTEBOOKS:
        nbformat.write(run(path), path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
