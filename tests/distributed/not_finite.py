"""Trains while the loss of the last process is NaN in one step: `python tests/distributed/not_finite.py CONFIG`.

Prints a hash of the weights and the largest number of steps that were skipped in a row.
"""

import hashlib
import sys
from functools import partial

from configs.command_line import parse
from configs.experiment import configs_of
from distributed import parallel
from distributed.sharding import whole_weights
from training.schedule import Stage


def main(config: str) -> None:
    values = parse(["--config", config]).values
    with parallel.together(values) as group:
        configs = configs_of(values)
        group.connect("cpu", configs.data)
        step, update, skipped = configs.step, configs.update, 0
        finite = update.objective.outcome
        for i in range(5):
            is_broken = i == 2 and group.rank == group.n - 1
            update.objective.outcome = partial(not_finite, finite) if is_broken else finite
            step(Stage(1.0, 32, 0.15))
            skipped = max(skipped, int(update.skipped_in_a_row))
        digest = hashlib.sha256()
        for tensor in whole_weights(update.model).values():
            assert tensor.isfinite().all()
            digest.update(tensor.numpy().tobytes())
        print(digest.hexdigest(), skipped)


def not_finite(outcome_of, model, batch):
    outcome = outcome_of(model, batch)
    return outcome._replace(sums={name: total * float("nan") for name, total in outcome.sums.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
