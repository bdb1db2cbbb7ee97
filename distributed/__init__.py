"""Runs with several processes: what torchrun starts, how they exchange values, and how tensors are
sharded."""
