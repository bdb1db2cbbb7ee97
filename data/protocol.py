"""The validation protocol: the same windows and the same masks for all runs with the same tokens.

The validation text is cut into windows of 256 tokens without overlap. In each window, round(0.15 *
256) = 38 positions are replaced by `[MASK]`, drawn once from a fixed seed. Those that hold `[UNK]`
are not: they stay visible. `data.document_protocol` has the windows of documents.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from data.text.sources import CorpusError

WINDOW_LEN = 256
MASKING_PROB = 0.15
N_MASKED = round(MASKING_PROB * WINDOW_LEN)
MAX_WINDOWS = 1024
SEED = 20181011  # the day BERT was submitted to arXiv


@dataclass(frozen=True)
class ValidationSet:
    """The windows that models are evaluated on."""

    windows: torch.Tensor  # [n_windows, 256] token ids
    masked: torch.Tensor  # [n_windows, 256] bool
    # [n_windows, 256] bool: False at special tokens, which are never masked; None: True everywhere
    maskable: torch.Tensor | None = None
    # [n_windows, 256] the number of each token's document in its window, from 1 on; 0 at padding.
    # None: all tokens of a window see each other
    attention_mask: torch.Tensor | None = None

    @property
    def n_windows(self) -> int:
        """The number of windows, 1 to 1,024."""
        return len(self.windows)

    @property
    def n_masked(self) -> float:
        """The mean number of masked positions per window: for one text N_MASKED, or fewer if there
        is `[UNK]`."""
        return self.masked.sum().item() / self.n_windows

    @property
    def drawable(self) -> np.ndarray:
        """The positions that masks are drawn from, bool `[n_windows, 256]`. In one text `[UNK]` is
        among them, and loses its mask afterwards (`only_maskable`)."""
        if self.attention_mask is None or self.maskable is None:
            return np.ones(self.windows.shape, dtype=bool)
        return self.maskable.cpu().numpy()

    def only_maskable(self, masked: torch.Tensor) -> torch.Tensor:
        """Other masks `[..., n_windows, 256]` of the windows, without special tokens; on their
        device."""
        masked = masked.to(self.windows.device)
        return masked if self.maskable is None else masked & self.maskable

    def take(self, rows: torch.Tensor) -> "ValidationSet":
        """Some of the windows, by their numbers `[n]`."""
        rows = rows.to(self.windows.device)

        def of_rows(each: torch.Tensor | None) -> torch.Tensor | None:
            return None if each is None else each[rows]

        return ValidationSet(
            self.windows[rows],
            self.masked[rows],
            of_rows(self.maskable),
            of_rows(self.attention_mask),
        )


def validation_set(
    validation_ids: torch.Tensor,
    unknown: int | None = None,
    device: torch.device | None = None,
    window_len: int = WINDOW_LEN,
) -> ValidationSet:
    """The windows and masks of the validation part `[n_validation_tokens]` of one text, on its
    device or another one.

    `unknown` is the id of `[UNK]`, if there is one. There are at most 1,024 windows, evenly spaced.
    Windows of another length are masked as those of 256 one after the other. Raises CorpusError if
    the text is shorter than one window, or if every masked token is `[UNK]`.
    """
    n = len(validation_ids) // window_len
    if n == 0:
        raise CorpusError(
            f"the corpus is too short: its last 10%, here {len(validation_ids)} tokens, must hold a"
            f" validation window of {window_len}, so it needs at least"
            f" {10 * (window_len - 1) + 1:,} characters, or as many other tokens"
        )

    kept = evenly_spaced(n, MAX_WINDOWS * WINDOW_LEN // window_len)
    windows = validation_ids[: n * window_len].view(n, window_len)[kept]
    windows = windows.to(device).long()
    n_drawn = -(-windows.numel() // WINDOW_LEN)
    masked = protocol_masks(n_drawn).flatten()[: windows.numel()].view(windows.shape)
    maskable = None if unknown is None else windows != unknown
    return with_masks(ValidationSet(windows, masked, maskable))


def protocol_masks(n_windows: int) -> torch.Tensor:
    """The masked positions: bool `[n_windows, 256]`, the same on every machine (NumPy on the CPU)."""
    everywhere = np.ones((n_windows, WINDOW_LEN), dtype=bool)
    return torch.from_numpy(ranks(fixed_generator(), everywhere) < N_MASKED)


def ranks(generator: np.random.Generator, drawable: np.ndarray) -> np.ndarray:
    """A random order of the positions `[n_windows, seq_len]` of each window; those that are not
    `drawable` (bool, same shape) come last."""
    numbers = generator.random(drawable.shape)
    numbers[~drawable] = 2.0
    return numbers.argsort(axis=1, kind="stable").argsort(axis=1)


def evenly_spaced(n: int, most: int) -> torch.Tensor:
    """`most` of the numbers 0 ... n - 1, or all of them if there are fewer."""
    numbers = np.linspace(0, n - 1, min(n, most)).round().astype(np.int64)
    return torch.from_numpy(numbers)


def fixed_generator() -> np.random.Generator:
    """The random numbers of the protocol's masks."""
    return np.random.Generator(np.random.PCG64(SEED))


def with_masks(drawn: ValidationSet) -> ValidationSet:
    """The set with those of its masks that may be. Raises CorpusError if there are none."""
    masked = drawn.only_maskable(drawn.masked)
    if not masked.any():
        raise CorpusError(
            "every masked token of the validation text is [UNK]: choose other data.tokens"
        )

    return replace(drawn, masked=masked)
