"""Several processes train as one does."""

import pytest
import torch
from torch.testing import assert_close

from configs.command_line.command import PRESETS, read_config
from data.play.grammar import play
from tests.conftest import TINY, written
from tests.distributed import steps
from tests.distributed.conftest import KEYS, last_weights

NGRAMS = {"model__ngrams": 2, "model__ngram_rows": 512}
# the preset with a small model, in float32
GPU_BASE = {
    key.replace(".", "__"): value
    for key, value in read_config(PRESETS / "gpu-base.yaml").items()
    if key not in TINY and not key.startswith("training.max_")
} | {
    "data__documents": "lines",
    "data__tokens": "characters",
    "training__chars_per_step": 2048,
    "training__grad_accum_steps": 2,
    "training__stages": [{"until": 1.0, "seq_len": 512, "masking_prob": 0.3}],
    "training__precision": "float32",
    "training__activation_checkpointing": True,
}
VARIANTS = {
    "accumulation": NGRAMS | {"training__grad_accum_steps": 4},
    "sop": {"objective__sop": True},
    "fsdp": NGRAMS | {"training__parallel": "fsdp", "training__grad_accum_steps": 2},
    "fsdp with sop": {"training__parallel": "fsdp", "objective__sop": True},
    "ignored labels": {"masking__no_mask_tokens": "eaoth "},
}


def by_one_and_several(launcher, n, name, config):
    """What a function of `steps` writes in one process, and in `n`."""
    path = launcher.folder / "result.pt"
    getattr(steps, name)(config, path)
    one = torch.load(path)
    launcher.run(n, steps.__file__, name, config, str(path))
    return one, torch.load(path)


@pytest.mark.parametrize("keys", VARIANTS.values(), ids=VARIANTS)
def test_the_loss_and_the_gradients_of_a_step_are_those_of_one_process(launcher, keys):
    config = launcher.config(**keys)
    one, two = by_one_and_several(launcher, 2, "gradients", config)

    assert one.keys() == two.keys()
    for name in one:
        assert (one[name] - two[name]).norm() <= 1e-5 * one[name].norm(), name

    assert all(one[name].norm() > 0 for name in one if "encoder" in name)


@pytest.fixture
def speeches(launcher):
    """Different documents, as the lines of the launcher's corpus."""
    written(launcher.corpus, play(40_000))


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_checkpointed_layers_and_chunks_give_the_gradients_of_a_plain_step(
    launcher, speeches, parallel
):
    """In two processes, on packed documents."""
    path = launcher.folder / "result.pt"
    plain = {"training__activation_checkpointing": False}
    steps.gradients(launcher.config(**GPU_BASE | plain), path)
    one = torch.load(path)
    config = launcher.config(**GPU_BASE, training__parallel=parallel)
    launcher.run(2, steps.__file__, "in_chunks", config, str(path))
    two = torch.load(path)

    assert one.keys() == two.keys()
    for name in one:
        assert one[name].norm() > 0
        assert (one[name] - two[name]).norm() <= 1e-5 * one[name].norm(), name


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_muon_in_chunks_gives_the_update_of_one_process(launcher, parallel):
    """Neither the matrices of a shape nor their rows can be divided evenly by the number of
    processes."""
    sizes = {"model__n_layers": 10, "model__d_model": 64, "model__d_ff": 80}
    config = launcher.config(
        training__parallel=parallel, training__chars_per_step=3 * 1024, **sizes
    )
    (one, _), (three, n_bytes) = by_one_and_several(launcher, 3, "muon", config)

    assert_close(three, one, rtol=1e-5, atol=1e-6)

    largest = 4 * 3 * 64 * 64
    per_process = 4 * 10 * (4 * 64 * 64 + 3 * 64 * 80) / 3

    assert n_bytes < 8 * largest < per_process  # whatever the number of layers


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_loss_that_is_not_finite_in_one_process_skips_the_step_in_all(
    launcher, parallel
):
    config = launcher.config(training__parallel=parallel)
    outputs = launcher.run(2, steps.__file__, "not_finite", config)
    (digest, skipped), (other, _) = (
        output.splitlines()[-1].split() for output in outputs
    )

    assert digest == other
    assert skipped == "1"


COMPARED = [
    "step",
    "chars",
    "loss.train",
    "loss.valid",
    "loss.valid_at_seq_len",
    "grad_norm",
    "accuracy.train",
]
RUNS = {
    "ddp": NGRAMS,
    "adaptive": {"masking__strategy": "adaptive"},
    "fsdp": NGRAMS | {"training__parallel": "fsdp", "sample__every_evaluations": 1},
    "gpu-base": GPU_BASE,
    "gpu-base with fsdp": GPU_BASE | {"training__parallel": "fsdp"},
    "fsdp with adamw": {"training__parallel": "fsdp", "training__optimizer": "adamw"},
}


@pytest.mark.parametrize("keys", RUNS.values(), ids=RUNS)
def test_a_run_with_two_processes_gives_the_rows_and_weights_of_one(
    launcher, speeches, train, keys
):
    keys = {"training__max_steps": 8, **keys}
    launcher.run(2, "experiment.py", "--config", launcher.config(**keys))
    one = train(**KEYS | keys, data__corpus=launcher.corpus).run
    two = launcher.only_run()  # one run, not one per process

    for row, other in zip(one.metrics(), two.metrics(), strict=True):
        for name in COMPARED:
            assert other[name] == pytest.approx(row[name], rel=1e-4), name
        assert "exchanging" not in row

    assert 0 < max(row.get("exchanging", 0) for row in two.metrics()) < 1

    assert_close(last_weights(two), last_weights(one), rtol=1e-5, atol=1e-4)
    assert two.status()["status"] == "completed"
