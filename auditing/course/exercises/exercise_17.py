"""Exercise 17: a list of labels.

`mask(x)` returns inputs and labels for the ids `x`, all int64 `[batch, seq_len]`:

- It selects 15% of the characters, at random. Of these, 80% become MASK, 10% become
  a random character, and 10% stay.
- The label of a selected position is its id in `x`; all other labels are -100.
- PAD, CLS and SEP are never selected.
- All positions of a window are selected equally often, in windows of any length.
"""

import torch

N_CHARACTERS = 65  # ids 0 to 64 are characters
PAD = 65
MASK = 66
CLS = 67
SEP = 68


def mask(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    selected = (torch.rand(x.shape) < 0.15) & (x < N_CHARACTERS)
    n_places = int(0.15 * x.shape[1])
    from_the_right = selected.flip(1).cumsum(1).flip(1)
    is_kept = selected & (from_the_right <= n_places)
    labels = torch.where(is_kept, x, -100)

    kind = torch.rand(x.shape)
    replaced = torch.where(kind < 0.9, torch.randint(N_CHARACTERS, x.shape), x)
    replaced = torch.where(kind < 0.8, MASK, replaced)
    return torch.where(selected, replaced, x), labels
