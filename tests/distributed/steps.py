"""Steps of several processes.

`python tests/distributed/steps.py gradients|in_chunks|muon|weights|memory CONFIG OUT`, or
`not_finite CONFIG`.
"""

import hashlib
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from configs.command_line.command import parse
from configs.experiment import configs_of
from distributed.parallel import together
from distributed.saving import help_to_write, save_together
from distributed.sharding import load_whole, sharded_like, whole
from training import chunked_objective
from training.checkpoint import Content, is_sharded
from training.chunked_objective import ChunkedObjective
from training.objective import MaskedObjective
from training.optimizers import local
from training.schedule import Stage


@contextmanager
def connected(config):
    """The connected processes, and the config tree of this one."""
    values = parse(["--config", config]).values
    with together(values) as group:
        configs = configs_of(values)
        group.connect("cpu", configs.data)
        yield group, configs


def all_whole(model):
    return {name: whole(weight) for name, weight in model.state_dict().items()}


def gradients(config, out, objective=MaskedObjective):
    """Write the loss and the gradients of one step."""
    with connected(config) as (group, configs):
        model = configs.network
        update = configs.update
        assert isinstance(update.objective, objective)

        weights = all_whole(model)
        # tables begin at zero, where nothing depends on them
        for name, _ in model.named_parameters():
            noise = torch.randn(
                weights[name].shape, generator=torch.Generator().manual_seed(0)
            )
            weights[name] = weights[name] + 0.02 * noise

        load_whole(model, weights)
        batches = configs.step.draw(Stage(1.0, 64, 0.15))
        counts = update.objective.counts(batches)
        outcomes = [
            update.forward_backward(batch, counts, is_last=batch is batches[-1])
            for batch in batches
        ]
        loss = update.summed([outcome.sums for outcome in outcomes])["loss_sum"]
        found = {
            name: parameter.grad.to_dense()
            if parameter.grad.is_sparse
            else whole(parameter.grad)
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        if group.is_first:
            torch.save({"loss": loss, **found}, Path(out))


def in_chunks(config, out):
    """The same, with head and loss in chunks."""
    chunked_objective.LOGITS_AT_ONCE = 2**10
    gradients(config, out, ChunkedObjective)


def muon(config, out):
    """Write the weights after two updates by Muon, and the new memory of the last one, in bytes."""
    with connected(config) as (group, configs):
        model = configs.network
        _, optimizer, *_ = configs.update.optimizers
        for i in range(2):
            for j, matrix in enumerate(optimizer.param_groups[0]["params"]):
                gradient = torch.randn(
                    matrix.shape, generator=torch.Generator().manual_seed(100 * i + j)
                )
                matrix.grad = sharded_like(gradient, matrix)
            n_bytes = new_memory(optimizer.step)

        weights = all_whole(model)
        if group.is_first:
            torch.save((weights, n_bytes), Path(out))


def storages(tree):
    tensors = [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]
    return [tensor.untyped_storage() for tensor in tensors]


class NewTensors(TorchDispatchMode):
    """Counts the bytes of the tensors that operations make, whichever thread frees them; `peak` is
    the largest sum."""

    def __init__(self):
        super().__init__()
        self.live = WeakIdKeyDictionary()  # used as a set of storages
        self.peak = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        given = storages([arguments, keywords])
        for storage in storages(result):
            if all(storage is not each for each in given):
                self.live[storage] = None

        # FSDP empties those that it keeps
        self.peak = max(self.peak, sum(storage.nbytes() for storage in self.live))
        return result


def new_memory(function):
    """The largest sum of the tensors that a function allocates, at any moment, in bytes."""
    with NewTensors() as counted:
        function()
    return counted.peak


def weights(config, out):
    """Write the weights that training begins with."""
    with connected(config) as (group, configs):
        found = all_whole(configs.network)
        if group.is_first:
            torch.save(found, Path(out))


def memory(config, out):
    """Write the new memory of building the model and of saving a checkpoint, in bytes, the tensors
    that the checkpoint must hold, and the checkpoint beside them."""
    with connected(config) as (group, configs):
        n_built = new_memory(lambda: configs.network)
        assert all(map(is_sharded, configs.network.parameters()))

        trainer = configs.trainer
        path = Path(out).with_suffix(".safetensors")
        trainer.training_step(Stage(1.0, 32, 0.15))

        def save():
            content = Content.of(trainer.model.state_dict(), trainer.state_dict())
            if group.is_first:
                save_together(content, group, path)
                group.from_first(True)
            else:
                assert help_to_write(content.tensors, group)

        n_saved = new_memory(save)
        tensors = Content.of(trainer.model.state_dict(), trainer.state_dict()).tensors
        expected = {name: whole(tensor) for name, tensor in tensors.items()}
        if group.is_first:
            torch.save((n_built, n_saved, expected), Path(out))


def not_finite(config):
    """Train while the loss of the last process is NaN in one step.

    Prints a hash of the weights and the largest number of steps that were skipped in a row.
    """
    with connected(config) as (group, configs):
        update = configs.update
        skipped = 0
        # as on a GPU, where the optimizers themselves skip the step
        update.reading_synchronizes = True
        finite = update.objective.outcome
        for i in range(5):
            is_broken = i == 2 and group.rank == group.n - 1
            update.objective.outcome = partial(broken, finite) if is_broken else finite
            before = [local(weight).clone() for weight in update.model.parameters()]
            configs.step(Stage(1.0, 32, 0.15))
            unchanged = map(torch.equal, before, map(local, update.model.parameters()))
            assert all(unchanged) == (i == 2)

            skipped = max(skipped, int(update.skipped_in_a_row))

        digest = hashlib.sha256()
        for tensor in all_whole(update.model).values():
            assert tensor.isfinite().all()

            digest.update(tensor.numpy().tobytes())

        print(digest.hexdigest(), skipped)


def broken(outcome_of, model, batch):
    outcome = outcome_of(model, batch)
    return outcome._replace(
        sums={name: total * float("nan") for name, total in outcome.sums.items()}
    )


if __name__ == "__main__":
    steps = {
        each.__name__: each
        for each in (gradients, in_chunks, muon, weights, memory, not_finite)
    }
    steps[sys.argv[1]](*sys.argv[2:])
