"""With `training.parallel=fsdp`, no process has the whole model, and a checkpoint is what one process would save."""

import torch

from tests.conftest import configs_for
from tests.distributed import steps
from tests.distributed.conftest import KEYS
from training.checkpoint import load_checkpoint

SHAPE = {"model__n_layers": 16, "model__d_model": 64}


def test_a_sharded_model_is_built_and_saved_without_its_whole(launcher, tmp_path):
    config = launcher.config(**SHAPE, training__parallel="fsdp")
    launcher.run(4, steps.__file__, "memory", config, str(tmp_path / "found.pt"))
    n_built, n_saved = torch.load(tmp_path / "found.pt")
    alone = configs_for(launcher.corpus, **KEYS, **SHAPE).network
    weights = alone.state_dict()
    n_whole = sum(weight.nbytes for weight in weights.values())
    assert n_built < 0.6 * n_whole
    assert n_saved < 0.05 * n_whole
    found = load_checkpoint(tmp_path / "found.safetensors")
    torch.testing.assert_close(found.weights, weights, rtol=0, atol=0)
