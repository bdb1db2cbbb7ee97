import pytest

from tests.conftest import check_same_weights, configs_for
from training.checkpoint import load_checkpoint, load_last
from training.evaluation import evaluate
from training.step import TrainingStep


def test_a_run_writes_its_files_and_rows_have_the_columns_of_the_design_and_even_spacing(
    train,
):
    trained = train(
        training__max_steps=20, training__evaluations=4, checkpoint__every_seconds=1e-6
    )
    run = trained.run
    rows = run.metrics()

    assert load_last(run.checkpoints).state["step"] == 20  # after one at every step
    assert rows == trained.callbacks.rows

    columns = ("step", "chars", "seq_len", "masking_prob")
    assert [[row[column] for column in columns] for row in rows] == [
        [5, 2_560, 32, 0.3],
        [10, 5_120, 32, 0.3],
        [15, 7_680, 64, 0.15],
        [20, 10_240, 64, 0.15],
    ]
    assert set(rows[0]) == {
        *columns, "seconds", "wall_seconds", "corpus", "learning_rate",
        "loss.train", "accuracy.train", "loss.valid", "loss.valid_stderr", "loss.valid_at_seq_len",
        "accuracy.valid", "grad_norm", "weight_norm", "chars_per_second", "share_of_peak",
    }  # fmt: skip

    for row in rows:
        assert row["seconds"] <= row["wall_seconds"]
        assert 0 < row["share_of_peak"] < 1.5

    files = [path for path in run.path.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "about.json", "config.yaml", "corpus.json", "vocabulary.json",
        "metrics.jsonl", "reference_lines.json", "curves.png",
        "last.safetensors", "previous.safetensors", "best.safetensors",
    }  # fmt: skip

    saved_once = train(training__max_steps=2).run
    assert {path.stem for path in saved_once.checkpoints.iterdir()} == {"last", "best"}


def test_a_run_at_all_masking_rates_cycles_and_reports_its_bound(train, monkeypatch):
    """The training loss gives each step the same weight, so it is the any-order bound."""
    drawn = []
    losses = []
    take_step = TrainingStep.__call__

    def recording(step, stage, progress):
        sums = take_step(step, stage, progress)
        drawn.append(stage.masking_prob)
        losses.append(sums["loss"].item())
        return sums

    monkeypatch.setattr(TrainingStep, "__call__", recording)
    rates = [1 / 32, 0.5, 1.0]
    stages = [{"until": 1.0, "seq_len": 32, "masking_prob": rates}]
    trained = train(
        training__max_steps=9, training__evaluations=1, training__stages=stages
    )

    (row,) = trained.run.metrics()

    assert drawn == rates * 3
    assert row["masking_prob"] == pytest.approx(sum(rates) / 3)
    assert row["loss.train"] == pytest.approx(sum(losses) / 9)
    assert row["loss.bound"] > 0


def test_evaluation_does_not_change_the_training_that_follows(train):
    once = train(training__evaluations=1, training__max_steps=12, model__dropout=0.2)
    often = train(training__evaluations=12, training__max_steps=12, model__dropout=0.2)
    check_same_weights(once.run, often.run)


def test_the_best_checkpoint_is_the_one_with_the_lowest_validation_loss(train):
    """Meanwhile the adaptive strategy has learned from the training losses."""
    trained = train(
        training__max_steps=40, training__evaluations=8, masking__strategy="adaptive"
    )
    masker = load_last(trained.run.checkpoints).state["training_step"]["source"][
        "masker"
    ]

    assert masker["segmenter"]["means"].max() > 1.05  # from 1 towards about 3 nats

    lowest = min(trained.run.metrics(), key=lambda row: row["loss.valid"])
    best = load_checkpoint(trained.run.checkpoints / "best.safetensors")

    assert best.state["step"] == lowest["step"]

    network = trained.configs.network
    network.load_state_dict(best.weights)
    data = trained.configs.data
    again = evaluate(
        network, data.validation_set, data.vocabulary.mask_token, seq_len=256
    )

    assert again.loss == lowest["loss.valid"]


def test_a_budget_of_characters_or_seconds_ends_the_run(train):
    by_chars = train(training__max_chars=5_000).run.metrics()
    assert by_chars[-1]["chars"] == 5_120  # the first step that reaches it

    by_seconds = train(training__max_seconds=0.3).run.metrics()
    assert by_seconds[-1]["seconds"] >= 0.3


def test_samples_follow_every_second_evaluation(train):
    keys = {
        "training__max_steps": 8,
        "training__evaluations": 4,
        "sample__every_evaluations": 2,
    }
    trained = train(sample__prompts=["a dog ran to the door"], **keys)
    n_masked = []
    for (guesses,) in trained.callbacks.samples:
        n_masked.append(sum(guess.guess is not None for guess in guesses))

    assert n_masked == [6, 3]  # 30% in the first stage, 15% in the second


def test_a_stop_during_an_evaluation_costs_no_further_step(corpus_file, train):
    configs = configs_for(corpus_file, training__max_steps=8)
    train(configs, on_row=lambda recording: setattr(configs.trainer, "must_stop", True))

    assert configs.trainer.step == 4  # the first of two evaluations
