"""The notebooks: run from top to bottom, and what of their outputs must not change.

python -m tests.notebooks      runs all of them and keeps their outputs
"""

import base64
import re
import struct
import sys
from pathlib import Path
from typing import Final

import nbformat
from nbclient import NotebookClient

NOTEBOOKS: Final = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook, run afresh."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=600, resources=resources).execute()
    for cell in notebook.cells:
        # When each cell ran would be a difference every time.
        cell.metadata.pop("execution", None)
    return notebook


def outputs(notebook: nbformat.NotebookNode) -> list[tuple[str, ...]]:
    """What the cells say, a tuple an output: words and numbers, and the sizes of pictures.

    Left out is what may differ from one machine to another: how a version of polars draws the
    borders of a table, the paint of a picture, how long a cell took.
    """
    said = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            kinds = tuple(sorted(data))
            if "image/png" in data:
                said.append((*kinds, *map(str, size(data["image/png"]))))
            else:
                words = re.findall(r"[\w.%/:-]+", data["text/plain"])
                said.append((*kinds, *map(steady, words)))
    return said


def steady(word: str) -> str:
    """A word as it is; a number with as many digits as every machine computes alike."""
    try:
        number = float(word)
    except ValueError:
        return word
    return "0" if abs(number) < 1e-9 else f"{number:.4g}"


def size(png: str) -> tuple[int, int]:
    """Width and height of a picture in pixels, rounded to tens: fonts differ a little."""
    width, height = struct.unpack(">II", base64.b64decode(png)[16:24])
    return round(width, -1), round(height, -1)


def main() -> int:
    """Run every notebook and keep its outputs."""
    for path in NOTEBOOKS:
        nbformat.write(run(path), path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
