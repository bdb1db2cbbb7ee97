"""The validation protocol: the same windows and the same masks for every run, independent of its settings.

The validation text is cut into windows of 256 characters without overlap. In each window, round(0.15 * 256) = 38
positions are replaced by `[MASK]`, drawn once from a fixed seed.
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
    """The windows that models are evaluated on."""

    windows: torch.Tensor  # [n_windows, 256] token ids
    masked: torch.Tensor  # [n_windows, 256] bool, N_MASKED true in each row

    @property
    def n_windows(self) -> int:
        """1 to 1,024."""
        return len(self.windows)


def validation_set(validation_ids: torch.Tensor, device: torch.device | str = "cpu") -> ValidationSet:
    """The windows and masks of a validation text `[n_validation_chars]`.

    There are at most 1,024 windows, evenly spaced. Raises CorpusError if the text is shorter than one window.
    """
    n = len(validation_ids) // WINDOW_LEN
    if n == 0:
        raise CorpusError(
            f"the corpus is too short: its last 10%, here {len(validation_ids)} characters, must hold a validation"
            f" window of {WINDOW_LEN}, so it needs at least {10 * (WINDOW_LEN - 1) + 1:,} characters"
        )
    kept = np.linspace(0, n - 1, min(n, MAX_WINDOWS)).round().astype(np.int64)
    windows = validation_ids[: n * WINDOW_LEN].view(n, WINDOW_LEN)[torch.from_numpy(kept)]
    return ValidationSet(windows.to(device).long(), protocol_masks(len(windows)).to(device))


def protocol_masks(n_windows: int) -> torch.Tensor:
    """The masked positions: bool `[n_windows, 256]`, the same on every machine (NumPy on the CPU)."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    order = generator.random((n_windows, WINDOW_LEN)).argsort(axis=1, kind="stable")
    masked = np.zeros((n_windows, WINDOW_LEN), dtype=bool)
    np.put_along_axis(masked, order[:, :N_MASKED], True, axis=1)
    return torch.from_numpy(masked)
