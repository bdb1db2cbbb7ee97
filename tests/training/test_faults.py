"""Losses that are not finite, memory that does not suffice, and a clock that jumps."""

import resource
import time

import pytest
import torch

from configs.command_line.command import resolve
from configs.keys import ConfigError
from configs.memory import is_out_of_memory, what_to_lower
from experiment import main
from tests.conftest import TINY, addresses, configs_for, limited, one_line, weights
from training.callbacks.health_checks import SKIPPED_IN_A_ROW, HealthCheckError
from training.schedule import Stage

STAGE = Stage(1.0, 32, 0.15)
WITH_TABLE = {"model__ngrams": 3}


def breaking(model, in_gradients=False):
    """Makes the logits of a model NaN in training until it is removed, or with `in_gradients` only
    its gradients."""

    def broken(_, inputs, logits):
        if in_gradients:  # sqrt(0) is 0 with an infinite slope
            return logits + (logits * 0).abs().sqrt()
        return logits * float("nan") if model.training else logits

    return model.register_forward_hook(broken)


def optimizer_states(update):
    return [str(optimizer.state_dict()) for optimizer in update.optimizers]


@pytest.mark.parametrize("in_gradients", [False, True])
@pytest.mark.parametrize("on_a_device", [False, True])
@pytest.mark.parametrize(
    "keys",
    [{"masking__strategy": "random"}, {"masking__strategy": "adaptive"}, WITH_TABLE],
)
def test_a_step_that_is_not_finite_is_skipped_and_the_next_one_is_not(
    corpus_file, in_gradients, on_a_device, keys
):
    configs = configs_for(corpus_file, **keys)
    step = configs.step
    update = step.update
    update.reading_synchronizes = on_a_device
    step(STAGE)
    before = weights(configs)
    states = optimizer_states(update)

    with breaking(configs.network, in_gradients):
        for skipped in (1, 2):
            # a single NaN would spoil the sums of the interval
            assert not any(step(STAGE).values())
            assert update.skipped_in_a_row == skipped

    assert torch.equal(weights(configs), before)
    assert optimizer_states(update) == states

    assert step(STAGE)["n_labels"] > 0
    assert update.skipped_in_a_row == 0
    assert not torch.equal(weights(configs), before)
    assert weights(configs).isfinite().all()

    learned_by_strategy = step.source.masker.state_dict().get("segmenter", {})
    for learned in learned_by_strategy.values():
        assert learned.isfinite().all()


def test_a_first_step_that_is_not_finite_leaves_new_optimizers(corpus_file):
    """Their states exist afterwards, as if no step had been taken."""
    fresh = configs_for(corpus_file, **WITH_TABLE)
    broken = configs_for(corpus_file, **WITH_TABLE)
    batches = configs_for(corpus_file).step.draw(STAGE)
    fresh.update.reading_synchronizes = True
    broken.update.reading_synchronizes = True

    with breaking(broken.network):
        broken.update(batches)

    broken.update(batches)
    fresh.update(batches)

    assert torch.equal(weights(broken), weights(fresh))


@pytest.mark.parametrize(
    ("n_steps", "message"),
    [
        (60, f"last {SKIPPED_IN_A_ROW} steps, up to step 50 .*windows of 64"),
        # Too few steps for that check, but a row would have no training loss.
        (8, r"the loss is nan in training and .* at step 8"),
    ],
)
def test_skipped_steps_stop_the_run_with_the_last_good_weights(
    corpus_file, train, n_steps, message
):
    configs = configs_for(corpus_file, training__max_steps=n_steps)
    good = []

    def break_it(callbacks):
        good.append(weights(configs))
        breaking(configs.network)

    with one_line(HealthCheckError, rf"{message}.* lower training\.learning_rate"):
        train(configs, on_row=break_it, checkpoint__every_seconds=0.001)

    assert torch.equal(weights(configs), good[0])


@pytest.mark.parametrize(
    "keys",
    [
        {"model.n_layers": 256, "model.d_ff": 65_536},
        {"training.chars_per_step": 2**30},
        {"model.ngrams": 2, "model.ngram_rows": 2**28},
    ],
)
def test_sizes_that_cannot_fit_are_refused_before_anything_is_allocated(keys):
    with pytest.raises(
        ConfigError, match=r"GiB of memory.*lower model\.d_model \(now 16384\)"
    ):
        resolve(TINY, {"model.d_model": 16_384, "model.n_heads": 16, **keys})


def test_a_batch_whose_lookups_cannot_be_indexed_on_cuda_is_refused(monkeypatch):
    monkeypatch.setattr("configs.devices.available_device", lambda name: name)
    monkeypatch.setattr("configs.memory._memory_of", lambda device: 2**50)
    keys = {
        "device": "cuda",
        "model.d_model": 384,
        "model.ngrams": 4,
        "model.ngram_parts": 1,
        "training.chars_per_step": 279_680,
    }
    resolve(TINY, keys | {"device": "cpu"})
    resolve(TINY, keys | {"training.chars_per_step": 279_616})
    resolve(TINY, keys | {"training.grad_accum_steps": 2})

    with pytest.raises(ConfigError, match=r"training.grad_accum_steps \(now 1\)"):
        resolve(TINY, keys)


def test_out_of_memory_names_the_keys_to_lower(corpus_file, tmp_path, refusal):
    """A real one: the process may have one more GiB of addresses, and each activation of the step
    needs as much."""
    keys = {
        "data.corpus": corpus_file, "logs": tmp_path / "logs", "device": "cpu", "training.compile": "false",
        "training.max_steps": 1, "training.chars_per_step": 2**19, "model.d_model": 512, "model.ngrams": 0,
        "training.stages": "[{until: 1.0, seq_len: 1024}]",
    }  # fmt: skip
    words = [f"{key}={value}" for key, value in keys.items()]

    with limited(resource.RLIMIT_AS, addresses() + 2**30):
        error = refusal(main, *words, code=1)

    assert "training.chars_per_step (now 524288)" in error
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert "model.d_model (now 32)" in what_to_lower(resolve(TINY, {}))


def test_a_jump_of_the_system_time_does_not_change_the_budget(train, monkeypatch):
    """The time jumps back by decades and forward again; training is timed by a monotonic clock."""
    now = [1e9, -3e7, 6e7]
    monkeypatch.setattr(time, "time", lambda: now[len(now) % 3] + len(now))
    rows = train(training__max_seconds=0.4, training__evaluations=4).callbacks.rows

    assert len(rows) == 4

    for name in ("seconds", "wall_seconds"):
        values = [row[name] for row in rows]
        assert values == sorted(values)
        assert values[-1] < 60
