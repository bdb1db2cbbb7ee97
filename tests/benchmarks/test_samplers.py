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
    cells = {(row["order"], row["steps"], row["temperature"]): row for row in content["table"]}
    assert len(cells) == 7  # each with the run, and with the ideal sampler if that writes in steps
    heading = "cuts per 1,000 characters"
    row = cells["random", "4", "1"]
    assert row[f"{heading}: run"].startswith(f"{untrained['cuts']:.1f} ±")
    assert row[f"{heading}: ideal"].startswith(f"{ideal['cuts']:.1f}")
    assert f"{heading}: ideal" not in cells["random", "16", "1"]


def test_only_runs_on_the_play_can_be_judged(tmp_path, corpus_file):
    trained = small_run(tmp_path / "run", corpus_file, training__max_steps=1)
    with pytest.raises(ConfigError, match="was not trained on the characters of the play"):
        samplers.main(Namespace(run=str(trained.run.path), texts=8), tmp_path / "result")
