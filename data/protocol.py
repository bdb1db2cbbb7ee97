"""The validation protocol: the same windows and the same masks for all runs with the same tokens.

The validation text is cut into windows of 256 tokens without overlap. In each window, round(0.15 *
256) = 38 positions are replaced by `[MASK]`, drawn once from a fixed seed. Those that hold `[UNK]`
are not: they stay visible.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from data.text.sources import CorpusError

WINDOW_LEN = 256
N_MASKED = round(0.15 * WINDOW_LEN)
MAX_WINDOWS = 1024
SEED = 20181011  # the day BERT was submitted to arXiv


@dataclass(frozen=True)
class ValidationSet:
    """The windows that models are evaluated on."""

    windows: torch.Tensor  # [n_windows, 256] token ids
    # [n_windows, 256] bool, N_MASKED true in each row, or fewer if there is [UNK]
    masked: torch.Tensor
    unknown: int | None = None  # the id of [UNK], which is never masked

    @property
    def n_windows(self) -> int:
        """The number of windows, 1 to 1,024."""
        return len(self.windows)

    @property
    def n_masked(self) -> float:
        """The mean number of masked positions per window: N_MASKED if there is no `[UNK]`."""
        return self.masked.sum().item() / self.n_windows

    def without_unknown(self, masked: torch.Tensor) -> torch.Tensor:
        """Other masks `[n_windows, 256]` of the windows, without positions that hold `[UNK]`."""
        masked = masked.to(self.windows.device)
        if self.unknown is None:
            return masked
        return masked & (self.windows != self.unknown)


def validation_set(
    validation_ids: torch.Tensor,
    unknown: int | None = None,
    device: torch.device | None = None,
) -> ValidationSet:
    """The windows and masks of a validation text `[n_validation_tokens]`, on its device or another
    one.

    `unknown` is the id of `[UNK]`, if there is one. There are at most 1,024 windows, evenly spaced.
    Raises CorpusError if the text is shorter than one window, or if every masked token is `[UNK]`.
    """
    n = len(validation_ids) // WINDOW_LEN
    if n == 0:
        raise CorpusError(
            f"the corpus is too short: its last 10%, here {len(validation_ids)} tokens, must hold a"
            f" validation window of {WINDOW_LEN}, so it needs at least"
            f" {10 * (WINDOW_LEN - 1) + 1:,} characters, or as many other tokens"
        )

    kept = np.linspace(0, n - 1, min(n, MAX_WINDOWS)).round()
    windows = validation_ids[: n * WINDOW_LEN].view(n, WINDOW_LEN)[kept]
    windows = windows.to(device).long()
    masked = protocol_masks(len(windows))
    validation = ValidationSet(windows, masked, unknown)
    validation = replace(validation, masked=validation.without_unknown(masked))
    if not validation.masked.any():
        raise CorpusError(
            "every masked token of the validation text is [UNK]: choose other data.tokens"
        )

    return validation


def protocol_masks(n_windows: int) -> torch.Tensor:
    """The masked positions: bool `[n_windows, 256]`, the same on every machine (NumPy on the CPU)."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    ranks = (
        generator.random((n_windows, WINDOW_LEN))
        .argsort(axis=1, kind="stable")
        .argsort(axis=1)
    )
    return torch.from_numpy(ranks < N_MASKED)
