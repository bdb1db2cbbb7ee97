import pytest

from tests.conftest import check_same_weights, configs_for
from training.checkpoint import load_checkpoint, load_last, load_weights
from training.evaluation import evaluate
from training.step import TrainingStep


def test_a_run_writes_its_files_and_rows_have_the_columns_of_the_design_and_even_spacing(train):
    trained = train(training__max_steps=20, training__evaluations=4, checkpoint__every_seconds=1e-6)
    rows = trained.run.metrics()
    assert load_last(trained.run.checkpoints).state["step"] == 20  # after one at every step
    assert [row["step"] for row in rows] == [5, 10, 15, 20]
    assert [row["chars"] for row in rows] == [512 * step for step in (5, 10, 15, 20)]
    assert [row["seq_len"] for row in rows] == [32, 32, 64, 64]
    assert [row["masking_prob"] for row in rows] == [0.3, 0.3, 0.15, 0.15]
    assert set(rows[0]) == {
        "step", "chars", "seconds", "wall_seconds", "corpus", "seq_len", "learning_rate", "masking_prob",
        "loss.train", "accuracy.train", "loss.valid", "loss.valid_stderr", "loss.valid_at_seq_len",
        "accuracy.valid", "grad_norm", "weight_norm", "chars_per_second", "share_of_peak",
    }  # fmt: skip
    assert rows == [dict(row) for row in trained.callbacks.rows]
    assert all(row["seconds"] <= row["wall_seconds"] for row in rows)
    assert all(0 < row["share_of_peak"] < 1.5 for row in rows)
    names = {
        str(path.relative_to(trained.run.path))
        for path in trained.run.path.rglob("*")
        if path.is_file()
    }
    assert names == {
        "about.json", "config.yaml", "corpus.json", "vocabulary.json",
        "metrics.jsonl", "reference_lines.json", "curves.png",
        *(f"checkpoints/{name}.safetensors" for name in ("last", "previous", "best")),
    }  # fmt: skip
    saved_once = train(training__max_steps=2).run
    assert {path.stem for path in saved_once.checkpoints.iterdir()} == {"last", "best"}


def test_a_run_at_all_masking_rates_cycles_and_reports_its_bound(train, monkeypatch):
    rates, drawn = [0.25, 0.5, 1.0], []
    draw = TrainingStep.draw

    def recording(step, stage, progress):
        drawn.append(stage.masking_prob)
        return draw(step, stage, progress)

    monkeypatch.setattr(TrainingStep, "draw", recording)
    stages = [{"until": 1.0, "seq_len": 32, "masking_prob": rates}]
    row = train(training__max_steps=9, training__stages=stages).run.metrics()[-1]
    assert drawn == rates * 3
    assert row["masking_prob"] == pytest.approx(sum(rates) / 3)
    assert row["loss.bound"] > 0


def test_the_training_loss_gives_each_step_the_same_weight(train, monkeypatch):
    """So with evenly spaced masking rates it is the any-order bound."""
    losses, take_step = [], TrainingStep.__call__

    def recording(step, *arguments):
        sums = take_step(step, *arguments)
        losses.append(sums["loss"].item())
        return sums

    monkeypatch.setattr(TrainingStep, "__call__", recording)
    stages = [{"until": 1.0, "seq_len": 32, "masking_prob": [1 / 32, 1.0]}]
    (row,) = train(
        training__max_steps=4, training__evaluations=1, training__stages=stages
    ).run.metrics()
    assert row["loss.train"] == pytest.approx(sum(losses) / 4)


def test_evaluation_does_not_change_the_training_that_follows(train):
    runs = [
        train(training__evaluations=n, training__max_steps=12, model__dropout=0.2).run
        for n in (1, 12)
    ]
    check_same_weights(*runs)


def test_the_best_checkpoint_is_the_one_with_the_lowest_validation_loss(train):
    """Meanwhile the adaptive strategy has learned from the training losses."""
    trained = train(training__max_steps=40, training__evaluations=8, masking__strategy="adaptive")
    masker = load_last(trained.run.checkpoints).state["training_step"]["source"]["masker"]
    assert masker["segmenter"]["means"].max() > 1.05  # from 1 towards about 3 nats
    best = min(trained.run.metrics(), key=lambda row: row["loss.valid"])
    trained.configs.network.load_state_dict(
        load_weights(trained.run.checkpoints / "best.safetensors")
    )
    data = trained.configs.data
    again = evaluate(
        trained.configs.network, data.validation, mask_token=data.vocabulary.mask_token, seq_len=256
    )
    assert again.loss == best["loss.valid"]
    assert (
        load_checkpoint(trained.run.checkpoints / "best.safetensors").state["step"] == best["step"]
    )


def test_a_budget_of_characters_or_seconds_ends_the_run(train):
    rows = train(training__max_chars=5_000).run.metrics()
    assert rows[-1]["chars"] == 5_120  # the first step that reaches it
    rows = train(training__max_seconds=0.3).run.metrics()
    assert rows[-1]["seconds"] >= 0.3


def test_samples_follow_every_second_evaluation(train):
    prompts = ["the cat sat", "a dog ran to the door"]
    keys = {"training__max_steps": 8, "training__evaluations": 4, "sample__every_evaluations": 2}
    trained = train(sample__prompts=prompts, **keys)
    assert len(trained.callbacks.samples) == 2
    for samples in trained.callbacks.samples:
        assert ["".join(guess.truth for guess in guesses) for guesses in samples] == prompts
        n_masked = [sum(guess.guess is not None for guess in guesses) for guesses in samples]
        assert n_masked in ([3, 6], [2, 3])  # 30% in the first stage, 15% in the second
    first, second = (
        [[guess.guess is None for guess in guesses] for guesses in samples]
        for samples in trained.callbacks.samples[:2]
    )
    visible_twice = [
        a and b
        for row, other in zip(first, second, strict=True)
        for a, b in zip(row, other, strict=True)
    ]
    # a lower rate masks a part of the same characters
    assert visible_twice == [a for row in first for a in row]


def test_a_stop_during_an_evaluation_costs_no_further_step(corpus_file, train):
    configs = configs_for(corpus_file, training__max_steps=8)
    train(configs, on_row=lambda recording: setattr(configs.trainer, "must_stop", True))
    assert configs.trainer.step == 4  # the first of two evaluations
