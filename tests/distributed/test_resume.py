"""A run continues with the same number of processes bit for bit, and with another one on the same
data."""

import os
import signal

import pytest
import torch

from distributed.parallel import ParallelUpdate
from distributed.processes import Processes
from tests.conftest import configs_for, only_run, slow
from tests.distributed.conftest import KEYS, last_weights


def trained(launcher, parts, **keys):
    """The weights of a run in `parts`: the number of processes, the last step, and
    training.parallel of each."""
    launcher.folder.mkdir()
    arguments = ["--config", launcher.config(**ONE_STAGE, **keys)]
    for n, steps, parallel in parts:
        keys_of_part = [f"training.max_steps={steps}", f"training.parallel={parallel}"]
        launcher.run(n, "experiment.py", *arguments, *keys_of_part)
        arguments = ["--resume", str(launcher.only_run().path)]

    return last_weights(launcher.only_run())


ONE_STAGE = {
    "training__stages": [{"until": 1.0, "seq_len": 32}],
    "training__warmup": 0.0,  # so that the learning rate does not depend on the budget
    "training__decay": 0.0,
}


@pytest.mark.parametrize("parallel", ["ddp", *slow("fsdp")])
def test_two_processes_resume_bit_for_bit(launcher, tmp_path, parallel):
    runs = []
    for name, steps in (("whole", [6]), ("parts", [3, 6])):
        launcher.folder = tmp_path / name
        runs.append(
            trained(
                launcher, [(2, last, parallel) for last in steps], model__dropout=0.1
            )
        )

    torch.testing.assert_close(*runs, rtol=0, atol=0)


def test_other_processes_go_on_with_the_same_data(launcher, tmp_path, train):
    """Another number of them, or with other shards. Without dropout, the result is that of one
    process up to rounding.

    Checkpoints hold whole tensors, so what one way to train saves, each way can load.
    """
    one = train(
        **KEYS | ONE_STAGE, data__corpus=launcher.corpus, training__max_steps=8
    ).run
    launcher.folder = tmp_path / "mixed"
    mixed = trained(
        launcher, [(2, 2, "ddp"), (1, 4, "ddp"), (2, 6, "fsdp"), (2, 8, "ddp")]
    )

    torch.testing.assert_close(mixed, last_weights(one), rtol=0, atol=1e-4)


def test_sharded_models_start_with_the_weights_of_a_run(launcher, tmp_path, train):
    old = train(
        **KEYS | ONE_STAGE, data__corpus=launcher.corpus, training__max_steps=3
    ).run
    weights = []
    for n, parallel in ((1, "ddp"), (2, "fsdp")):
        logs = tmp_path / parallel
        keys = [f"logs={logs}", "training.max_steps=4", f"training.parallel={parallel}"]
        launcher.run(n, "experiment.py", "--init-from", str(old.path), *keys)
        weights.append(last_weights(only_run(logs)))

    torch.testing.assert_close(*weights, rtol=0, atol=1e-4)


def test_a_process_that_joins_a_run_draws_its_own_dropout(corpus_file):
    update = configs_for(corpus_file).update
    state = update.state_dict()
    draws = []
    for rank in (0, 1, 2, 0, 1, 2):
        parallel = object.__new__(ParallelUpdate)  # without a connection to processes
        vars(parallel).update(vars(update), processes=Processes(rank, 3))
        parallel.load_state_dict(state)
        draws.append(float(torch.rand(())))

    assert len(set(draws[:3])) == 3
    assert draws[:3] == draws[3:]


def test_a_restart_continues_the_run(launcher):
    config = launcher.config(
        training__max_steps=60, checkpoint__every_seconds=0.1, training__evaluations=1
    )
    programs = launcher.start(2, "experiment.py", "--config", config)
    launcher.until("logs/mlm/*/checkpoints/last.safetensors")
    os.kill(programs[1].pid, signal.SIGKILL)
    for program in programs:
        program.wait(60)

    outputs = launcher.run(2, "experiment.py", "--config", config, attempt=1)

    assert "resuming at step" in outputs[0]
    assert launcher.only_run().status()["status"] == "completed"  # and there is one run


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ctrl_c_saves_and_ends_all(launcher, parallel):
    """Also before the first evaluation, when there are no best weights."""
    programs = launcher.start_long("experiment.py", f"training.parallel={parallel}")
    for program in programs:
        os.kill(program.pid, signal.SIGINT)

    for program in programs:
        os.kill(program.pid, signal.SIGTERM)  # torchrun repeats it

    assert [program.wait(30) for program in programs] == [130, 0]
    assert launcher.only_run().status()["status"] == "interrupted"
