"""What is done with a trained run, for tokens that are not characters."""

import json
from operator import itemgetter

import numpy as np
import pytest

import evaluate
import finetune
import predict
from configs.keys import ConfigError
from runs.run_folder import RunFolderError
from tests.conftest import one_line
from tests.trained.conftest import csv_of_animals, small_run
from trained.inside import nearest_characters
from trained.load import load_trained
from trained.template import read_template


def test_blanks_are_tokens(trained, printed):
    path = trained.run.path
    result = json.loads(
        printed(predict.main, path, "the _ sat on", "--top", 2, "--json")
    )
    (blank,) = result["blanks"]
    name = "character" if trained.vocabulary.tokens == "characters" else "token"

    first = blank["candidates"][0][name]

    assert result["text"][blank["offset"] : blank["offset"] + len(first)] == first
    assert len(blank["candidates"]) == 2
    assert printed(predict.main, path, "the __ sat", "Zoë _").count("\n") >= 2

    if trained.vocabulary.is_characters:
        # "ë" is read as [UNK], and stays
        assert printed(predict.main, path, "Zoë _").startswith("Zoë ")

    ids = read_template(r"the _\_[MASK]", trained.vocabulary).ids

    assert (ids == trained.vocabulary.mask_token).sum() == 2


def test_lines_stay_lines_and_may_be_longer_than_a_window(trained, printed, piped):
    piped(b"the mat_\na dog ran_____\n" + b"_" * 65)

    assert printed(predict.main, trained.run.path).count("\n") == 2


def test_it_is_measured(trained, printed):
    output = printed(evaluate.main, trained.run.path)
    results = json.loads((trained.run.path / "evaluation.json").read_text())

    assert "counting needs" in output
    assert "counting" not in results
    assert (trained.run.path / "evaluation.png").exists()

    best = min(trained.run.metrics(), key=itemgetter("loss.valid"))
    assert results["loss.valid"] == pytest.approx(best["loss.valid"], abs=1e-6)

    if trained.vocabulary.tokens == "characters":
        assert "  per character " not in output
    else:
        assert results["bits_per_character"] == pytest.approx(
            best["bits_per_character"], abs=1e-6
        )
        assert f"{results['bits_per_character']:.4f} bits" in output


def test_it_is_fine_tuned(few_steps, trained, tmp_path, printed):
    file = csv_of_animals(tmp_path / "animals.csv", " Ω")
    output = printed(finetune.main, trained.run.path, "--task", file, "--draws", 1)

    assert "28 labelled of 28, 12 for testing" in output
    assert ("the models read them as [UNK]" in output) == (
        trained.vocabulary.unknown_token is not None
    )


def test_characters_are_compared_with_characters_only(trained):
    vocabulary = trained.vocabulary
    if vocabulary.is_characters:
        nearest = nearest_characters(trained.model, vocabulary)
        assert set(nearest) == set(vocabulary.characters)
        return

    with pytest.raises(ConfigError):
        nearest_characters(trained.model, vocabulary)


def test_the_tokens_are_those_of_training_and_a_damaged_vocabulary_is_one_line(trained):
    run = trained.run
    again = load_trained(str(run.path))

    assert again.vocabulary.description() == run.vocabulary()
    assert again.data().vocabulary is again.vocabulary
    assert again.vocabulary.unknown_token == trained.vocabulary.unknown_token

    content = run.vocabulary_path.read_text()
    damaged = {"special_tokens": 3}
    if trained.vocabulary.tokens == "subwords":
        damaged = {"tokenizer": {"model": 3}}
    if trained.vocabulary.is_characters:
        damaged = {"tokens": "custom", "source": {}}

    try:
        run.vocabulary_path.write_text(json.dumps(json.loads(content) | damaged))
        with one_line(RunFolderError, r"vocabulary\.json is damaged"):
            load_trained(str(run.path))
    finally:
        run.vocabulary_path.write_text(content)


def test_runs_with_different_tokens_compare_per_character(tmp_path, text_file, printed):
    paths = []

    losses = []
    for tokens in ("characters", "bytes", "bpe:270"):
        path = tmp_path / tokens
        keys = {"data__tokens": tokens, "training__max_steps": 2}
        rows = small_run(path, text_file, **keys).run.metrics()
        best = min(rows, key=itemgetter("loss.valid"))
        losses.append(best.get("loss.valid_per_character", best["loss.valid"]))
        paths.append(path)

    output = printed(evaluate.main, *paths)

    lines = output[output.index("side by side") :].splitlines()

    assert "no verdict" in lines[0]

    numbers = np.array([line.split()[1:4:2] for line in lines[1:]], dtype=float)
    np.testing.assert_allclose(numbers[:, 0], losses, rtol=0, atol=1e-4)
    np.testing.assert_allclose(numbers[:, 1], losses / np.log(2), rtol=0, atol=1e-4)
