"""Trials: pairs of runs with the same seeds that decide whether a change is better."""
