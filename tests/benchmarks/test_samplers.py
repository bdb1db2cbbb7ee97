import json
from argparse import Namespace

import pytest

from benchmarks import samplers
from configs.keys import ConfigError
from data.play.entropy import entropy_rate
from tests.trained.conftest import small_run
from tests.writing.test_judge import WORDS


@pytest.fixture
def small(monkeypatch):
    """A shorter play with a smaller grammar, and few settings."""
    monkeypatch.setattr("data.corpus.grammar", lambda: WORDS)
    monkeypatch.setattr("data.corpus.play", lambda: WORDS.write(20_000, 1))
    monkeypatch.setattr(samplers, "LENGTH", 16)
    monkeypatch.setattr(samplers, "STEPS", (1, 4, 64))
    monkeypatch.setattr(samplers, "TEMPERATURES", (0.5,))
    monkeypatch.setattr(samplers, "TEMPERED_STEPS", 2)
    monkeypatch.setattr(samplers, "ORDERS", ("random", "entropy"))
    monkeypatch.setattr(samplers, "TEMPERED_ORDERS", ("random",))


@pytest.mark.usefixtures("small")
def test_every_setting_is_judged(tmp_path):
    trained = small_run(tmp_path / "run", "play", training__max_steps=1)
    samplers.main(Namespace(run=str(trained.run.path), texts=8), tmp_path / "result")
    content = json.loads((tmp_path / "result.json").read_text())
    rows = {(row["writer"], row["order"], row["steps"], row["temperature"]): row for row in content["settings"]}
    assert list(rows) == [
        *(("run", order, steps, 1.0) for order in ("random", "entropy") for steps in (1, 4, 16)),
        ("run", "random", 2, 0.5),
        *(("ideal", order, steps, 1.0) for order in ("random", "entropy") for steps in (1, 4)),
        ("ideal", "random", 2, 0.5),
    ]
    assert content["entropy_rate"] == pytest.approx(entropy_rate(WORDS))
    untrained, ideal = rows["run", "random", 4, 1.0], rows["ideal", "random", 4, 1.0]
    assert untrained["impossible"] == 1
    assert ideal["cuts"] < untrained["cuts"]
    assert all(len(row["example"]) == 16 for row in rows.values())
    assert (tmp_path / "result.png").stat().st_size > 10_000
    table = (tmp_path / "result.md").read_text()
    assert f"| ideal | any | 16 | 1 | 0% | 16 | 0 | {entropy_rate(WORDS):.3f} | |" in table
    assert table.count("\n| ") == 3 + len(rows) + 6
    of_run, of_ideal = untrained["cuts"], ideal["cuts"]
    assert f"| random | 4 | {of_run:.1f} | {of_ideal:.1f} | {of_run - of_ideal:.1f} ±" in table
    assert f"| random | 16 | {(cuts := rows['run', 'random', 16, 1.0]['cuts']):.1f} | 0.0 | {cuts:.1f} ±" in table


def test_only_runs_on_the_play_can_be_judged(tmp_path, corpus_file):
    trained = small_run(tmp_path / "run", corpus_file, training__max_steps=1)
    with pytest.raises(ConfigError, match="was not trained on the characters of the play"):
        samplers.main(Namespace(run=str(trained.run.path), texts=8), tmp_path / "result")
