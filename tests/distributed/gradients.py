"""Writes the loss and the gradients of one step: `python tests/distributed/gradients.py CONFIG OUT`."""

import sys
from pathlib import Path

import torch

from configs.command_line import parse
from configs.experiment import configs_of
from distributed import processes
from distributed.sharding import load_whole, whole, whole_weights
from training.objective import n_labels
from training.schedule import Stage


def main(config: str, out: str) -> None:
    with processes.together() as group:
        group.connect("cpu")
        step = configs_of(parse(["--config", config]).values).step
        weights = whole_weights(step.model)
        for name, _ in step.model.named_parameters():  # tables begin at zero, where nothing depends on them
            noise = torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(0))
            weights[name] = weights[name] + 0.02 * noise
        load_whole(step.model, weights)
        batches = step.draw(Stage(1.0, 64, 0.15))
        count = torch.stack([n_labels(batch) for batch in batches]).sum()
        losses = [step.backward(batch, count, averaged=batch is batches[-1]) for batch in batches]
        loss = group.sum(torch.stack([part.loss_sum.double() for part in losses]).sum())
        gradients = {
            name: parameter.grad.to_dense() if parameter.grad.is_sparse else whole(parameter.grad)
            for name, parameter in step.model.named_parameters()
            if parameter.grad is not None
        }
        if group.is_first:
            torch.save({"loss": loss, **gradients}, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
