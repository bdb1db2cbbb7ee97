import pytest

import trial
from benchmarks import lists
from benchmarks.command import recipe
from benchmarks.lists import LISTS, arguments

ROWS = [(name, row) for name in LISTS for row in recipe(name)["trials"]]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_every_row_is_a_trial(name, row, monkeypatch, tmp_path, refusal):
    """All is checked before the folder for the runs, which does not exist here."""
    content = recipe(name)
    logs = tmp_path / "file"
    logs.touch()
    words = arguments(content | content["trials"][row])
    assert "set logs to a folder" in refusal(trial.main, *words, f"logs={logs}")


def test_a_list_of_trials_becomes_a_table(monkeypatch, tmp_path, capsys):
    """The trials themselves are in tests/test_trial.py."""
    words = []
    known = {"n_pairs": 3, "mean": 0.02, "low": 0.01, "high": 0.03}

    def decided(given):
        words.extend(given)
        return [{"line": "worse by 0.020", "beside": {"memory": known}, **known}]

    monkeypatch.setattr(lists, "decided", decided)
    options = lists.Namespace(list="warmup", names=["quick, 64 only"])
    lists.main(options, tmp_path / "results")

    assert "--preset=quick" in words
    assert "training.max_chars=3000000" in words
    cells = capsys.readouterr().out.strip().splitlines()[-1].split("|")
    assert [cell.strip() for cell in cells[1:4]] == [
        "quick, 64 only",
        "worse by 0.020",
        "+0.020 (+0.010 to +0.030)",
    ]
