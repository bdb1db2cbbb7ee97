"""Several processes train as one does."""

import pytest
import torch

from tests.distributed import steps
from tests.distributed.conftest import KEYS
from training.checkpoint import load_weights

NGRAMS = {"model__ngrams": 2, "model__ngram_rows": 512}
VARIANTS = {
    "accumulation": NGRAMS | {"training__grad_accum_steps": 4},
    "sop": {"objective__sop": True},
    "fsdp": NGRAMS | {"training__parallel": "fsdp", "training__grad_accum_steps": 2},
    "fsdp with sop": {"training__parallel": "fsdp", "objective__sop": True},
    "ignored labels": {"masking__no_mask_tokens": "eaoth "},
}


@pytest.mark.parametrize("keys", VARIANTS.values(), ids=VARIANTS)
def test_the_loss_and_the_gradients_of_a_step_are_those_of_one_process(launcher, tmp_path, keys):
    config = launcher.config(**keys)
    steps.gradients(config, str(tmp_path / "1.pt"))
    launcher.run(2, steps.__file__, "gradients", config, str(tmp_path / "2.pt"))
    one, two = (torch.load(tmp_path / f"{n}.pt") for n in (1, 2))
    assert one.keys() == two.keys()
    for name in one:
        assert (one[name] - two[name]).norm() <= 1e-5 * one[name].norm(), name
    assert all(one[name].norm() > 0 for name in one if "encoder" in name)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_muon_in_chunks_gives_the_update_of_one_process(launcher, tmp_path, parallel):
    """Neither the matrices of a shape nor their rows can be divided evenly by the number of
    processes."""
    n, n_layers, d_model, d_ff = 3, 10, 64, 80
    sizes = {"model__n_layers": n_layers, "model__d_model": d_model, "model__d_ff": d_ff}
    config = launcher.config(
        training__parallel=parallel, training__chars_per_step=3 * 1024, **sizes
    )
    steps.muon(config, str(tmp_path / "1.pt"))
    launcher.run(n, steps.__file__, "muon", config, str(tmp_path / "n.pt"))
    (one, _), (several, n_bytes) = (torch.load(tmp_path / name) for name in ("1.pt", "n.pt"))
    torch.testing.assert_close(several, one, rtol=1e-5, atol=1e-6)
    largest = 4 * max(3 * d_model**2, 2 * d_model * d_ff)
    n_weights = n_layers * (4 * d_model**2 + 3 * d_model * d_ff)
    assert n_bytes < 8 * largest < 4 * n_weights / n  # whatever the number of layers


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_loss_that_is_not_finite_in_one_process_skips_the_step_in_all(launcher, parallel):
    outputs = launcher.run(
        2, steps.__file__, "not_finite", launcher.config(training__parallel=parallel)
    )
    (digest, skipped), (other, _) = (output.splitlines()[-1].split() for output in outputs)
    assert digest == other
    assert skipped == "1"


RUNS = {
    "ddp": NGRAMS,
    "adaptive": {"masking__strategy": "adaptive"},
    "fsdp": NGRAMS | {"training__parallel": "fsdp", "sample__every_evaluations": 1},
    "fsdp with adamw": {"training__parallel": "fsdp", "training__optimizer": "adamw"},
}


@pytest.mark.parametrize("keys", RUNS.values(), ids=RUNS)
def test_a_run_with_two_processes_gives_the_rows_and_weights_of_one(launcher, train, keys):
    keys = {"training__max_steps": 8, **keys}
    launcher.run(2, "experiment.py", "--config", launcher.config(**keys))
    one = train(**KEYS | keys, data__corpus=launcher.corpus).run
    two = launcher.only_run()  # one run, not one per process
    for row, other in zip(one.metrics(), two.metrics(), strict=True):
        for name in (
            "loss.train",
            "loss.valid",
            "loss.valid_at_seq_len",
            "grad_norm",
            "accuracy.train",
        ):
            assert other[name] == pytest.approx(row[name], rel=1e-4), name
        assert (other["step"], other["chars"]) == (row["step"], row["chars"])
        assert "exchanging" not in row
    assert 0 < max(row.get("exchanging", 0) for row in two.metrics()) < 1
    weights, others = (load_weights(run.checkpoints / "last.safetensors") for run in (one, two))
    torch.testing.assert_close(others, weights, rtol=1e-5, atol=1e-4)
    assert two.status()["status"] == "completed"
