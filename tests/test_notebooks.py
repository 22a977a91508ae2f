"""Every notebook runs from top to bottom and shows pictures."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # Jupyter's own
def test_a_notebook_runs_from_top_to_bottom_and_shows_pictures(path: Path):
    kept = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(fresh, timeout=300, resources=resources).execute()
    assert _pictures(fresh) >= 3
    assert _pictures(kept) == _pictures(fresh), "keep the outputs: run the notebook and save it"


def _pictures(notebook) -> int:
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return sum("image/png" in output.get("data", {}) for output in outputs)
