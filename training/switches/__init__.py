"""Switches of PyTorch that hold for the whole process, each with its reason.

Only `training.callbacks.threads` and `trained.load` set another one later: the number of threads,
where it is free.
"""
