import json

from benchmarks import sequential
from runs.sequential import critical_values


def test_a_fixed_plan_has_as_much_power_with_the_fewest_pairs(monkeypatch):
    monkeypatch.setattr(sequential, "N_TRIALS", 200)
    ends = list(sequential.simulated(0.02, 0.009, critical_values(sequential.MOST)))
    few = sequential.fixed_plan(ends, 1)
    many = sequential.fixed_plan(ends, 200)
    assert few == 2 < many < sequential.MOST


def test_the_table_has_a_row_per_spread(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sequential, "N_TRIALS", 20)
    sequential.main(None, tmp_path / "results")
    table = json.loads((tmp_path / "results.json").read_text())["table"]
    assert [float(row["spread"]) for row in table] == list(sequential.SPREADS)
    assert all(0 < float(row["ratio"]) <= 1.5 for row in table)
