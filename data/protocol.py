"""The validation protocol: the same windows and the same masks for every run, whatever its settings.

The last 10% of the corpus, cut into windows of 256 characters that do not overlap; in each exactly
round(0.15 * 256) = 38 positions, all replaced by `[MASK]`, drawn once from a seed that no run can change.
"""

from dataclasses import dataclass

import numpy as np
import torch

from data.corpus import CorpusError, split_at

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


def validation_windows(ids: torch.Tensor) -> torch.Tensor:
    """The validation windows `[n_windows, 256]` of a whole corpus `ids` `[n_chars]`.

    At most 1,024, evenly spaced over the validation text. Raises CorpusError where there is not even one.
    """
    valid = ids[split_at(len(ids)) :]
    n = len(valid) // WINDOW_LEN
    if n == 0:
        needed = 10 * (WINDOW_LEN - 1) + 1
        raise CorpusError(
            f"the corpus has {len(ids):,} characters, too few: its last 10% must hold a validation window of"
            f" {WINDOW_LEN}, so it needs at least {needed:,}"
        )
    windows = valid[: n * WINDOW_LEN].view(n, WINDOW_LEN)
    kept = np.linspace(0, n - 1, min(n, MAX_WINDOWS)).round().astype(np.int64)
    return windows[torch.from_numpy(kept)]


def protocol_masks(n_windows: int) -> torch.Tensor:
    """Which positions are hidden: bool `[n_windows, 256]`, the same on every machine (NumPy on the CPU)."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    order = generator.random((n_windows, WINDOW_LEN)).argsort(axis=1, kind="stable")
    masked = np.zeros((n_windows, WINDOW_LEN), dtype=bool)
    np.put_along_axis(masked, order[:, :N_MASKED], True, axis=1)
    return torch.from_numpy(masked)


def validation_set(ids: torch.Tensor) -> ValidationSet:
    """The protocol's windows and masks for a whole corpus `ids` `[n_chars]`, on the device of `ids`."""
    windows = validation_windows(ids)
    return ValidationSet(windows, protocol_masks(len(windows)).to(ids.device))


def unigram_loss(ids: torch.Tensor, n_chars: int) -> float:
    """Cross-entropy, in nats, of predicting every validation character by its frequency in training.

    Half a count is added to every character, so that one unseen in training does not cost infinity.
    """
    split = split_at(len(ids))
    counts = torch.bincount(ids[:split].cpu(), minlength=n_chars).to(torch.float64) + 0.5
    return float(-(counts / counts.sum()).log()[ids[split:].cpu()].mean())
