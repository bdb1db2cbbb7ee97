"""Trains while the loss of the last process is NaN in one step: `python tests/distributed/not_finite.py CONFIG`.

Prints a hash of the weights and the largest number of steps that were skipped in a row.
"""

import hashlib
import sys

from configs.command_line import parse
from configs.experiment import configs_of
from distributed.processes import together
from distributed.sharding import whole_weights
from training.objective import MaskedObjective, Outcome
from training.schedule import Stage


class Broken(MaskedObjective):
    """Its losses are NaN while `is_broken`."""

    is_broken = False

    def outcome(self, model, batch):
        outcome = super().outcome(model, batch)
        factor = float("nan") if self.is_broken else 1.0
        return Outcome(outcome.losses, outcome.sums | {"loss_sum": outcome.sums["loss_sum"] * factor})


def main(config: str) -> None:
    values = parse(["--config", config]).values
    with together(values) as group:
        configs = configs_of(values)
        group.connect("cpu", configs.data)
        step, skipped, objective = configs.step, 0, Broken()
        step.update.module.objective = objective
        for i in range(5):
            objective.is_broken = i == 2 and group.rank == group.n - 1
            step(Stage(1.0, 32, 0.15))
            skipped = max(skipped, int(step.update.skipped_in_a_row))
        digest = hashlib.sha256()
        for tensor in whole_weights(step.update.model).values():
            assert tensor.isfinite().all()
            digest.update(tensor.numpy().tobytes())
        print(digest.hexdigest(), skipped)


if __name__ == "__main__":
    main(*sys.argv[1:])
