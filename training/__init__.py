"""What changes weights: the training loop and its step, optimizers, schedule, evaluation and checkpoints."""
