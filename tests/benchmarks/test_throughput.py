import json
from argparse import Namespace

import pytest

from benchmarks import throughput
from benchmarks.throughput import EAGER, RECIPES, Model, values_of

SIZES = {"model.d_model": 32, "model.n_layers": 2, "model.n_heads": 4, "model.d_ff": 48}
SHAPE = SIZES | {
    "training.chars_per_step": 128,
    "training.stages": [{"until": 1.0, "seq_len": 16}],
}


@pytest.mark.usefixtures("shakespeare")
@pytest.mark.parametrize("name", RECIPES)
def test_every_step_learns(name):
    # Noam multiplies it with a small number at first
    rate = 10.0 if name == "annotated" else 0.004
    own = {"device": "cpu", "training.learning_rate": rate}
    keys = RECIPES[name] | EAGER | SHAPE | own
    model = Model(values_of(keys))

    losses = [model.take().item() for _ in range(100)]

    assert sum(losses[-10:]) < 0.95 * sum(losses[:10])


@pytest.mark.usefixtures("shakespeare")
def test_everyone_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "SHAPES", [(SIZES, 8, 16)])
    monkeypatch.setattr(throughput, "SECONDS_PER_TURN", 0.01)
    eager = {name: keys | EAGER for name, keys in RECIPES.items()}
    monkeypatch.setattr(throughput, "RECIPES", eager)
    throughput.main(Namespace(quick=True, repeats=5), tmp_path / "result")
    table = json.loads((tmp_path / "result.json").read_text())["table"]

    names = [row[""].removeprefix("2 layers of 32, 8 x 16: ") for row in table]
    assert names == list(RECIPES)

    for row in table:
        assert row["characters per second"]
        assert row["share of the peak"]
