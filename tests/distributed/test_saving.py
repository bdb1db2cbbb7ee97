"""With `training.parallel=fsdp`, no process has the whole model, and a checkpoint has what all have
together."""

import pytest
import torch
from safetensors.torch import load_file

from distributed import saving
from distributed.processes import Processes
from tests.conftest import configs_for
from tests.distributed import steps
from tests.distributed.conftest import KEYS, last_weights
from training.checkpoint import Content, load_checkpoint, load_weights

SHAPE = {"model__n_layers": 16, "model__d_model": 64}
# Numbers of other types, and a tensor with fewer rows than there are processes.
MORE = {"model__ngrams": 2, "model__ngram_rows": 9, "objective__sop": True}


def test_a_sharded_model_is_built_and_saved_without_gathering_it(launcher, tmp_path):
    config = launcher.config(**SHAPE, **MORE, training__parallel="fsdp")
    launcher.run(4, steps.__file__, "memory", config, str(tmp_path / "found.pt"))
    n_built, n_saved, expected = torch.load(tmp_path / "found.pt")
    weights = configs_for(launcher.corpus, **KEYS, **SHAPE, **MORE).network.state_dict()
    n_whole = sum(weight.nbytes for weight in weights.values())

    assert n_built < 0.6 * n_whole
    assert n_saved < 0.05 * n_whole

    load_checkpoint(tmp_path / "found.safetensors")  # its hash is right
    found = load_file(tmp_path / "found.safetensors")

    assert found.keys() == expected.keys() > weights.keys()

    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_sharded_model_starts_with_the_weights_that_one_process_has(
    launcher, tmp_path
):
    config = launcher.config(**MORE, training__parallel="fsdp")
    launcher.run(2, steps.__file__, "weights", config, str(tmp_path / "found.pt"))
    alone = configs_for(launcher.corpus, **KEYS, **MORE).network.state_dict()

    torch.testing.assert_close(torch.load(tmp_path / "found.pt"), alone, rtol=0, atol=0)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_several_processes_keep_checkpoints_together(launcher, parallel):
    config = launcher.config(
        training__max_steps=3,
        training__parallel=parallel,
        checkpoint__keep_at=["1 steps", "3 steps"],
    )
    launcher.run(2, "experiment.py", "--config", config)
    run = launcher.only_run()

    assert run.kept() == ["1-steps", "3-steps"]
    last = last_weights(run)
    weights = load_weights(run.checkpoints / "at-3-steps.safetensors")
    torch.testing.assert_close(weights, last, rtol=0, atol=0)


def test_rows_that_do_not_arrive_are_noticed(tmp_path, monkeypatch):
    """Those at the end of the file, which would be shorter. Nothing is left of it."""
    content_of = saving.content_of

    def shortened(tensor):
        # the first call writes the file
        monkeypatch.setattr(saving, "content_of", content_of)
        return content_of(tensor[:3])

    monkeypatch.setattr(saving, "content_of", shortened)
    monkeypatch.setattr(saving, "is_sharded", lambda tensor: True)
    monkeypatch.setattr(saving, "rows_of", lambda tensor: slice(0, 4))
    content = Content.of({"weight": torch.ones(4, 3)}, {})

    with pytest.raises(OSError, match="rows of process 0 are missing"):
        saving.save_together(content, Processes(), tmp_path / "run" / "file")

    assert list((tmp_path / "run").iterdir()) == []
