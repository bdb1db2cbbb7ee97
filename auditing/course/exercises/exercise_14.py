"""Exercise 14: a number of positions.

`mask(x)` returns inputs and labels for the ids `x`, all int64 `[batch, seq_len]`:

- It selects 15% of the characters, at random. Of these, 80% become MASK, 10% become
  a random character, and 10% stay.
- The label of a selected position is its id in `x`; all other labels are -100.
- PAD, CLS and SEP are never selected.
"""

import torch

N_CHARACTERS = 65  # ids 0 to 64 are characters
PAD = 65
MASK = 66
CLS = 67
SEP = 68


def mask(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    n_windows, width = x.shape
    n_selected = round(0.15 * width)
    positions = torch.randint(width, (n_windows, n_selected))
    selected = torch.zeros(x.shape, dtype=torch.bool)
    selected.scatter_(1, positions, True)
    selected &= x < N_CHARACTERS

    kind = torch.rand(x.shape)
    replaced = torch.where(kind < 0.9, torch.randint(N_CHARACTERS, x.shape), x)
    replaced = torch.where(kind < 0.8, MASK, replaced)
    return torch.where(selected, replaced, x), torch.where(selected, x, -100)
