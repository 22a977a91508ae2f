"""Notebooks run, and their committed outputs equal those of a run."""

from pathlib import Path

import pytest

from tests.docs.notebooks import NOTEBOOKS, kernel, outputs, pictures, run

pytestmark = pytest.mark.slow

READABLE = {"image/png", "text/html", "text/plain"}
"""Output types that both Jupyter and code hosts show without running a notebook."""


@pytest.fixture(scope="module")
def manager():
    with kernel() as started:
        yield started


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # Jupyter's own
def test_a_notebook_runs_and_its_kept_outputs_are_what_it_says(path: Path, manager):
    import nbformat

    kept, fresh = nbformat.read(path, as_version=4), run(path, manager)
    assert outputs(fresh) == outputs(kept), "python -m tests.docs.notebooks keeps the outputs"
    for now, then in zip(pictures(fresh), pictures(kept), strict=True):
        assert now == pytest.approx(then, rel=0.25)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_can_be_read_without_running_it(path: Path):
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    data = [o.get("data", {}) for cell in notebook.cells for o in cell.get("outputs", ())]
    assert set().union(*data) <= READABLE
    assert sum("image/png" in each for each in data) >= 1
    assert path.stat().st_size < 1_000_000
    assert notebook.cells[0].source.startswith("# ")
