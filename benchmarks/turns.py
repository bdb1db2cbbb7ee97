"""Timing, and alternating measurements: whatever disturbs the machine disturbs every candidate alike."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

Result = TypeVar("Result")


def take_turns(candidates: Mapping[str, Callable[[], Result]], rounds: int, warmup: int = 0) -> dict[str, list[Result]]:
    """Call every candidate once per round and return its results, without those of the first `warmup` rounds.

    Each round begins with another candidate. Prints how long it will take once the first round is over.
    """
    names = list(candidates)
    results: dict[str, list[Result]] = {name: [] for name in names}
    began = time.perf_counter()
    for i in range(warmup + rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(candidates[name]())
        if i == 0:
            minutes = (time.perf_counter() - began) * (warmup + rounds - 1) / 60
            print(f"about {minutes:.0f} minutes to go", flush=True)
    return {name: found[warmup:] for name, found in results.items()}


def seconds_per_call(call: Callable[[], torch.Tensor], n: int) -> float:
    """The mean over `n` calls, including the device's work."""
    began = time.perf_counter()
    for _ in range(n):
        result = call()
    result.flatten()[0].item()  # waits for the device
    return (time.perf_counter() - began) / n
