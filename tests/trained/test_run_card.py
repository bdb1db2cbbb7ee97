"""`evaluate.py RUN --card`."""

import re
import shutil

import numpy as np
import pytest
import yaml

from evaluate import main
from runs.files import to_json
from runs.run_folder import RunFolder
from tests.conftest import one_line
from trained.model_card import card
from trained.run_card import claims, losses_by_seed, write_card

LOSSES = {3: 1.10, 4: 1.20, 5: 1.15}


@pytest.fixture
def runs(plain, tmp_path):
    """Three runs that differ in their seed only: copies with other losses."""
    copies = []
    for seed, loss in LOSSES.items():
        run = RunFolder(
            shutil.copytree(plain.run.path, tmp_path / "logs" / "mlm" / f"run{seed}")
        )
        run.save_config(run.config() | {"seed": seed})
        rows = run.metrics()
        run.metrics_path.unlink()
        for row in rows:
            run.append_metrics(row | {"loss.valid": loss})
        copies.append(run)
    return copies


def test_a_card_has_the_facts_of_a_run(runs, printed, text_file):
    run = runs[0]
    facts = {"commit": "1234567", "is_dirty": True}
    (run.path / "run.yaml").write_text(yaml.safe_dump(facts))

    assert printed(main, run.path, "--card").strip() == str(run.path / "card.md")

    card = (run.path / "card.md").read_text()
    error = run.metrics()[0]["loss.valid_stderr"]

    assert "![curves](curves.png)" in card
    assert f"| 1.1000 ± {error:.4f} nats |" in card
    assert "| model.d\\_model | `32` | `128` |" in card
    assert "model.n\\_heads" in card
    assert "masking.masking\\_prob |" not in card  # the default
    assert run.corpus()["sha256"] in card
    assert str(text_file.parent) not in card
    assert "- processor: " in card
    assert "- commit: 1234567, with the changes in source.diff" in card


def test_the_measures_of_evaluate_are_on_the_card(runs):
    run = runs[0]
    measured = {"bound": {"nats": 1.4, "stderr": 0.02}}
    (run.path / "evaluation.json").write_text(to_json(measured))
    card = write_card(run).read_text()

    assert "- any-order bound: 1.4000 ± 0.0200 nats" in card


def test_both_cards_state_the_same_number_of_weights(with_ngrams):
    cards = [card(with_ngrams), write_card(with_ngrams.run).read_text()]
    numbers = [
        re.search(r"has ([0-9,]+) weights|weights: ([0-9,]+)", each) for each in cards
    ]

    assert numbers[0][1] == numbers[1][2]


def test_all_seeds_of_the_same_keys_are_found(runs):
    first, second, third = runs
    unfinished = RunFolder(
        shutil.copytree(third.path, third.path.parent / "unfinished")
    )
    unfinished.save_config(third.config() | {"seed": 6})
    unfinished.save_status("crashed")
    (shutil.copytree(third.path, third.path.parent / "x") / "config.yaml").write_text(
        "["
    )

    assert losses_by_seed(first) == LOSSES

    second.save_config(second.config() | {"training.warmup": 0.33})
    third.save_corpus("sentences.txt", "0" * 64)

    assert losses_by_seed(first) == {3: 1.10}


def test_several_seeds_allow_claims_about_the_keys(runs):
    text = claims(runs[0])
    values = np.array(list(LOSSES.values()))
    margin = 4.3027 * values.std(ddof=1) / 3**0.5  # t with 2 degrees of freedom

    assert f"a mean loss of 1.1500 ± {margin:.4f}" in text
    assert "seeds: 3, 4, 5" in text


def test_one_seed_allows_claims_about_its_weights_only(runs):
    for run in runs[1:]:
        shutil.rmtree(run.path)
    text = claims(runs[0])

    assert "It may be claimed that these weights have this loss" in text
    assert "It may not be claimed that these keys lead to this loss" in text


def test_a_card_of_a_checkpoint_is_refused(runs):
    kept = RunFolder(runs[0].path, "5M")
    with one_line(ValueError, "--card is about a whole run: use run3"):
        write_card(kept)
