"""Trains while the loss of the last process is NaN in one step: `python tests/distributed/not_finite.py CONFIG`.

Prints a hash of the weights and the largest number of steps that were skipped in a row.
"""

import hashlib
import sys

from configs.command_line import parse
from configs.experiment import configs_of
from distributed import processes
from distributed.sharding import whole_weights
from training.objective import masked_loss
from training.schedule import Stage


def main(config: str) -> None:
    with processes.together() as group:
        group.connect("cpu")
        step = configs_of(parse(["--config", config]).values).step
        skipped = 0
        for i in range(5):
            is_broken = i == 2 and group.rank == group.n - 1
            step.loss_function = broken_loss if is_broken else masked_loss
            step(Stage(1.0, 32, 0.15))
            skipped = max(skipped, int(step.skipped_in_a_row))
        digest = hashlib.sha256()
        for tensor in whole_weights(step.model).values():
            assert tensor.isfinite().all()
            digest.update(tensor.numpy().tobytes())
        print(digest.hexdigest(), skipped)


def broken_loss(model, batch):
    loss = masked_loss(model, batch)
    return loss._replace(loss_sum=loss.loss_sum * float("nan"))


if __name__ == "__main__":
    main(*sys.argv[1:])
