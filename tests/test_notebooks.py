"""The notebooks run from top to bottom, and are saved with their pictures."""

import nbformat
import pytest
from nbclient import NotebookClient

from runs.files import ROOT
from tests.conftest import TINY, config_file, slow, train_in

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def parameters(tmp_path_factory, text_file):
    """The first code cell of each notebook, for small runs."""
    folder = tmp_path_factory.mktemp("notebooks")
    keys = {"data__corpus": text_file, "training__max_steps": 4}
    trained = [train_in(folder / f"run{seed}", seed=seed, **keys) for seed in (0, 1)]
    for each in trained:
        each.run.save_status("completed")
    runs = [str(each.run.path) for each in trained]
    words = ["--config", config_file(folder, keys)]
    (folder / "play").mkdir()
    play = ["--config", config_file(folder / "play", {"training__max_steps": 2})]
    new = folder / "new"  # without a copy of Folio
    new.mkdir()
    return {
        "0_start_here": f"""
%cd -q {new}
REPOSITORY, TEXT, SECONDS, KEYS = "{ROOT}", "", 1, {words}
CHANGE = "model.ngrams=0"
""",
        "1_look_at_a_run": f"RUNS = {runs}",
        "2_look_at_masks": f'CORPUS, MASKING_PROB = "{text_file}", 0.15',
        "3_look_inside": f'RUN, TEXT = "{runs[0]}", "the c_t sat_on"',
        "4_change_one_thing": f'CHANGE, COMMON, SEEDS = ["masking.no_change_prob=0"], {words}, 1',
        "5_what_it_believes": f"""
import functools, sys
sys.path.insert(0, "{ROOT}")
import data.corpus, data.play.grammar, writing.judge
data.corpus.play, writing.judge.OWN_TEXTS = functools.partial(data.play.grammar.play, 300_000), 16
SNAPSHOTS, RATES = [2, 4], {{"one rate": 0.15, "two rates": [0.25, 0.75]}}
SEQ_LEN, WINDOWS, NEIGHBORS, BACKGROUNDS, TEXTS = 32, 8, [2, 3], [0.0, 0.8], 2
MODEL = {{key: value for key, value in {TINY}.items() if key.startswith("model.")}}
""",
        "6_what_matters": f"""
import sys
sys.path.insert(0, "{ROOT}")
import data.corpus, data.play.grammar, writing.credit
data.corpus.play, writing.credit.N_WINDOWS = data.play.grammar.play, 8  # not the last notebook's play
LENGTHS = {{"warmup": [16, 32, 64], "short only": [16] * 3}}
RATES, KEEP, WINDOW = [0.4, 0.25, 0.15], ["1 steps"], 0
COMMON = {play}
""",
    }


@pytest.fixture(scope="module")
def client():
    """Has one kernel for all notebooks, because its imports take seconds."""
    empty = nbformat.v4.new_notebook()
    client = NotebookClient(
        empty, timeout=120, resources={"metadata": {"path": str(ROOT / "notebooks")}}
    )
    yield client
    client.nb = empty
    client.execute()  # ends the kernel


@pytest.mark.parametrize(
    "path", [*NOTEBOOKS[:4], *slow(*NOTEBOOKS[4:])], ids=lambda path: path.stem
)
def test_a_notebook_runs_and_draws(path, parameters, client):
    client.nb = notebook = nbformat.read(path, as_version=4)
    assert pictures(notebook) >= 2  # with which it is saved
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    here = f"%cd -q {path.parent}"
    first.source = f"%reset -f\n{here}\n{parameters[path.stem]}"
    client.execute(cleanup_kc=False)
    assert pictures(notebook) >= 2


def pictures(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)
