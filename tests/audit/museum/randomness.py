"""Bugs in the draws: masks that repeat from call to call, from window to window, or from worker to worker."""

import numpy as np
import torch

from tests.audit.museum.exhibit import (
    MASK,
    N_ORDINARY,
    RATE,
    Pair,
    TensorMasker,
    corrupted,
    drawn,
    exhibit,
    labels_of,
    ordinary,
)


@exhibit("static-masks")
def masks_of_the_preparation(x: torch.Tensor) -> Pair:
    """Masks are drawn once, when the dataset is prepared: every epoch hides the same positions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        selected = drawn(x)
        return corrupted(x, selected), labels_of(x, selected)


@exhibit("same-mask-in-batch")
def one_mask_for_all(x: torch.Tensor) -> Pair:
    """One row of draws, of the windows' length, is broadcast over the batch."""
    selected = (torch.rand(x.shape[-1]) < RATE) & ordinary(x)
    return corrupted(x, selected), labels_of(x, selected)


class SeededDataset:
    """Masks with a generator of its own, seeded in the constructor."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(47)

    def __call__(self, x: torch.Tensor) -> Pair:
        select, replace = torch.from_numpy(self.generator.random((2, *x.shape)))
        random_ids = torch.from_numpy(self.generator.integers(N_ORDINARY, size=tuple(x.shape)))
        selected = (select < RATE) & ordinary(x)
        replaced = torch.where(replace < 0.8, MASK, torch.where(replace < 0.9, random_ids, x))
        return torch.where(selected, replaced, x), labels_of(x, selected)


@exhibit("same-masks-per-worker", make=lambda make_masker: TensorMasker(make_masker()))
def generator_copied_to_workers() -> SeededDataset:
    """The dataset has a seeded generator, and every worker gets a copy of it: all workers draw the same masks."""
    return SeededDataset()
