"""Callbacks of the training loop: they write, show, check and steer a run."""
