"""`python evaluate.py`, in process except for one start as a user starts it."""

import json
import math
import re
import shutil

import pytest
import yaml

from evaluate import main
from runs.run_folder import RunFolder
from tests.conftest import train_in, written


@pytest.fixture(scope="module")
def trained(tmp_path_factory, sentences):
    """Short runs: two seeds of one setting, and two of another."""
    folder = tmp_path_factory.mktemp("trained")
    keys = {
        "data__corpus": written(folder / "sentences.txt", sentences[:20_000]),
        "training__max_steps": 2,
    }
    for name, seed, width in (
        ("a", 0, 32),
        ("b", 1, 32),
        ("narrow1", 1, 16),
        ("narrow", 0, 16),
    ):
        train_in(folder / name, seed=seed, model__d_ff=width, **keys)
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    """Copies of three of them; the last one is the last run."""
    for name in ("a", "b", "narrow1", "narrow"):
        shutil.copytree(trained / name, tmp_path / "logs" / "mlm" / name)
    return [
        RunFolder(tmp_path / "logs" / "mlm" / name) for name in ("a", "b", "narrow")
    ]


@pytest.fixture
def evaluated(tmp_path, printed, monkeypatch):
    """Evaluate runs in this process, with figures if a test `draws`; returns the output."""

    def evaluate(*words, draws=False):
        if not draws:
            monkeypatch.setattr("evaluate.save_measures", lambda path, *_: path.touch())
        return printed(main, *words, "--logs", tmp_path / "logs")

    return evaluate


def strict_json(path):
    return json.loads(path.read_text(), parse_constant=pytest.fail)


def test_a_run_is_measured(runs, evaluated):
    output = evaluated("last", draws=True)
    for part in (
        "protocol",
        "one at a time",
        "uniform",
        "newline",
        "4 or more",
        "counting",
    ):
        assert part in output

    results = strict_json(runs[2].path / "evaluation.json")

    best = min(row["loss.valid"] for row in runs[2].metrics())
    assert results["loss.valid"] == pytest.approx(best, abs=1e-6)
    assert (runs[2].path / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    assert not (runs[0].path / "evaluation.json").exists()


@pytest.mark.slow
def test_the_likelihood_of_a_writer_is_measured_on_request(
    runs, evaluated, monkeypatch
):
    monkeypatch.setattr("writing.measures.WINDOWS", 4)

    assert "any-order bound" in evaluated("last", "--writing")

    results = strict_json(runs[2].path / "evaluation.json")
    assert results["orders"].keys() == {"left-to-right", "random", "confidence"}
    for row in (results["bound"], *results["orders"].values()):
        assert row["bits"] == pytest.approx(row["nats"] / math.log(2))
        assert row["stderr"] < 0.1

    # The bound is the mean of the likelihoods in random order; it also lets the model predict two
    # special tokens.
    random = results["orders"]["random"]
    of_special_tokens = math.log(1 + 2 / len(runs[2].vocabulary()["characters"]))
    difference = results["bound"]["nats"] - random["nats"]
    margin = 4 * random["stderr"]
    assert -margin <= difference <= of_special_tokens + margin

    evaluated("last")

    # also what only --writing measures
    assert strict_json(runs[2].path / "evaluation.json") == results


@pytest.mark.slow
def test_credit_is_measured_at_each_kept_checkpoint_of_a_run_on_the_play(
    tmp_path, evaluated, monkeypatch
):
    monkeypatch.setattr("writing.credit.N_WINDOWS", 2)
    keys = {"data__corpus": "play", "training__max_steps": 2}
    run = train_in(
        tmp_path / "logs" / "mlm" / "play", checkpoint__keep_at=["1 steps"], **keys
    ).run
    output = evaluated("last", "--credit")

    rows = strict_json(run.path / "credit.json")
    assert rows[1]["chars"] == run.metrics()[-1]["chars"]
    assert rows[0]["chars"] < rows[1]["chars"]
    for row in rows:
        assert f"{row['chars']:,}   {row['overlap']:.3f}" in output
        exact = sum(each["exact"] for each in row["by_distance"].values())
        assert exact == pytest.approx(1)


def test_credit_needs_the_play(runs, refusal):
    assert "--credit needs a run on the characters of the play" in refusal(
        main, runs[0].path, "--credit"
    )


def test_two_seeds_against_one_give_no_verdict_on_the_settings(runs, evaluated):
    """The interval is over windows: seeds alone may differ by more than it says."""
    config = yaml.safe_load(runs[0].config_path.read_text())
    del config["training.muon_momentum"]  # as in a run that is older than this key
    runs[0].config_path.write_text(yaml.safe_dump(config))
    output = evaluated(*(run.path for run in runs), runs[0].path)
    comparison = output[output.index("side by side") :]

    assert "model.d_ff" in comparison
    assert "training.muon_momentum" not in comparison
    assert "(2 seeds)\n" in comparison
    assert "side by side (any-order bound, nats)" in comparison

    lines = [line for line in comparison.splitlines() if line.startswith("  group 2")]
    assert len(lines) == 2

    number = r"[+-]\d\.\d{4}"
    pattern = (
        rf"\(1 seed\); against group 1 {number}: no verdict .* {number} to {number}\)$"
    )
    assert all(re.search(pattern, line) for line in lines)
    assert not re.search(r"better|worse|tie|p [=<]", comparison)


def test_two_seeds_per_group_give_a_verdict_over_seeds(runs, evaluated):
    shutil.copytree(runs[0].path, runs[0].path.with_name("again"))
    output = evaluated(*(run.path for run in runs), "narrow1", "again")

    assert output.count("left out: 1 of 5 runs") == 1

    verdict = r"[+-]\d\.\d{4} ± \d\.\d{4}: (better|worse|tie) \(p [=<] \d\.\d{3} over seeds\)\n"
    assert re.search(r"group 2: .* \(2 seeds\); against group 1 " + verdict, output)


def test_a_corpus_with_a_single_validation_window(
    train, tmp_path, sentences, evaluated
):
    """One window has no standard error: the JSON file says null, and the tables leave it out."""
    path = written(tmp_path / "short.txt", sentences[:2_600])
    for width in (16, 32):
        keys = {"data__corpus": path, "model__d_ff": width, "training__max_steps": 1}
        train(**keys, folder=tmp_path / str(width))
    output = evaluated(tmp_path / "16", tmp_path / "32")
    results = strict_json(tmp_path / "16" / "evaluation.json")

    assert results["loss.valid_stderr"] is None
    assert math.isfinite(results["loss.valid"])
    assert f"loss {results['loss.valid']:.4f} nats" in output
    assert output.endswith(
        ": no verdict on the settings, which needs two seeds per group\n"
    )


def test_runs_on_different_texts_are_not_compared(
    train, tmp_path, corpus_file, evaluated
):
    another = written(tmp_path / "another.txt", corpus_file.read_text()[:2_600:-1])
    for name, text in (("one", corpus_file), ("other", another)):
        train(data__corpus=text, training__max_steps=1, folder=tmp_path / name)

    output = evaluated(tmp_path / "one", tmp_path / "other")
    assert "trained and measured on different texts" in output


def test_a_text_that_has_moved_is_named(
    train, tmp_path, corpus_file, evaluated, refusal
):
    folder = tmp_path / "run"
    train(data__corpus=corpus_file, training__max_steps=1, folder=folder)
    moved = corpus_file.rename(tmp_path / "moved.txt")
    another = written(tmp_path / "another.txt", moved.read_text()[1:])

    assert "data.corpus" in refusal(main, folder)
    assert "moved.txt" in evaluated(folder, f"data.corpus={moved}")
    assert "has changed since" in refusal(main, folder, f"data.corpus={another}")


def test_an_unknown_run_gets_the_list_of_runs(tmp_path, fork_server):
    words = ["evaluate.py", "nowhere", "--logs", str(tmp_path / "logs")]
    program = fork_server.start(words, {"CUDA_VISIBLE_DEVICES": ""})

    assert program.wait(60) == 2

    (error,) = program.stderr.read().splitlines()
    assert "has no runs yet" in error


def test_a_run_without_weights_and_one_whose_corpus_has_changed(
    train, corpus_file, refusal
):
    run = train(data__corpus=corpus_file, training__max_steps=1).run
    # the same characters, another text
    corpus_file.write_text(corpus_file.read_text()[:-1])
    for path, message in (
        (None, "has changed since"),
        (run.corpus_path, "corpus.json"),
        (run.checkpoints / "best.safetensors", "best.safetensors is missing"),
        (run.metrics_path, "has no trained weights yet"),
        (run.config_path, "config.yaml"),
    ):
        if path is not None:
            path.unlink()
        assert message in refusal(main, run.path)
