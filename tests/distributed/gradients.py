"""Writes the loss and the gradients of one step: `python tests/distributed/gradients.py CONFIG OUT`."""

import sys
from pathlib import Path

import torch

from configs.command_line import parse
from configs.experiment import configs_of
from distributed.parallel import together
from distributed.sharding import load_whole, whole, whole_weights
from training.schedule import Stage


def main(config: str, out: str) -> None:
    values = parse(["--config", config]).values
    with together(values) as group:
        configs = configs_of(values)
        group.connect("cpu", configs.data)
        model, update = configs.network, configs.update
        weights = whole_weights(model)
        for name, _ in model.named_parameters():  # tables begin at zero, where nothing depends on them
            noise = torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(0))
            weights[name] = weights[name] + 0.02 * noise
        load_whole(model, weights)
        batches = configs.step.draw(Stage(1.0, 64, 0.15))
        counts = update.objective.counts(batches)
        outcomes = [update.backward(batch, counts, is_last=batch is batches[-1]) for batch in batches]
        loss = update.summed([outcome.sums for outcome in outcomes])["loss_sum"]
        gradients = {
            name: parameter.grad.to_dense() if parameter.grad.is_sparse else whole(parameter.grad)
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        if group.is_first:
            torch.save({"loss": loss, **gradients}, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
