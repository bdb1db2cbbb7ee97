from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws(path: Path, corpus_file, train):
    runs = [train(data__corpus=str(corpus_file), training__max_steps=4, seed=seed).run for seed in (0, 1)]
    for run in runs:
        run.save_config({"seed": 0, "training.max_steps": 4})
    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.source.startswith("RUNS = ")
    first.source = f"RUNS = {[str(run.path) for run in runs]}"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert pictures(notebook) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_with_its_pictures(path: Path):
    assert pictures(nbformat.read(path, as_version=4)) >= 2


def pictures(notebook) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)
