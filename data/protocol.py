"""The validation protocol: the same windows and the same masks for every run, whatever its settings.

The last 10% of the corpus, cut into windows of 256 characters that do not overlap; in each exactly
round(0.15 * 256) = 38 positions, all replaced by `[MASK]`, drawn once from a seed that no run can change.
"""

from dataclasses import dataclass

import numpy as np
import torch

from data.corpus import CorpusError

WINDOW_LEN = 256
N_MASKED = round(0.15 * WINDOW_LEN)
MAX_WINDOWS = 1024
SEED = 20181011  # the day BERT was submitted to arXiv


@dataclass(frozen=True)
class ValidationSet:
    """Windows to evaluate on. `windows` `[n_windows, 256]` are token ids, `masked` says which are hidden."""

    windows: torch.Tensor
    masked: torch.Tensor  # [n_windows, 256] bool, N_MASKED true in each row

    @property
    def n_windows(self) -> int:
        return len(self.windows)


def validation_windows(validation_ids: torch.Tensor) -> torch.Tensor:
    """The validation windows `[n_windows, 256]` of the validation text `[n_validation_chars]`.

    At most 1,024, evenly spaced. Raises CorpusError if the text is shorter than one window.
    """
    n = len(validation_ids) // WINDOW_LEN
    if n == 0:
        needed = 10 * (WINDOW_LEN - 1) + 1
        raise CorpusError(
            f"the validation text, the last 10% of the corpus, has {len(validation_ids)} characters, too few for a"
            f" window of {WINDOW_LEN}: take a text of at least {needed:,} characters"
        )
    windows = validation_ids[: n * WINDOW_LEN].view(n, WINDOW_LEN)
    kept = np.linspace(0, n - 1, min(n, MAX_WINDOWS)).round().astype(np.int64)
    return windows[torch.from_numpy(kept)]


def protocol_masks(n_windows: int) -> torch.Tensor:
    """Which positions are hidden: bool `[n_windows, 256]`, the same on every machine (NumPy on the CPU)."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    order = generator.random((n_windows, WINDOW_LEN)).argsort(axis=1, kind="stable")
    masked = np.zeros((n_windows, WINDOW_LEN), dtype=bool)
    np.put_along_axis(masked, order[:, :N_MASKED], True, axis=1)
    return torch.from_numpy(masked)


def validation_set(validation_ids: torch.Tensor) -> ValidationSet:
    """The protocol's windows and masks for the validation text `[n_validation_chars]`, on its device."""
    windows = validation_windows(validation_ids)
    return ValidationSet(windows, protocol_masks(len(windows)).to(validation_ids.device))
