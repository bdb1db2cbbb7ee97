"""From a model and masked batches to a trained run: stages, optimizer, loop, evaluation, checkpoints, tracking.

labml is known in `training.tracking` only.
"""
