"""The training loop, its step, optimizers, schedule, evaluation and checkpoints: everything that
changes weights."""
