"""Exercise 19: kinds and places.

`mask(x)` returns inputs and labels for the ids `x`, all int64 `[batch, seq_len]`:

- It selects 15% of the characters, at random. Of these, 80% become MASK, 10% become
  a random character, and 10% stay.
- The label of a selected position is its id in `x`; all other labels are -100.
- PAD, CLS and SEP are never selected.
- The kind of a position does not depend on where it stands.
"""

import torch

N_CHARACTERS = 65  # ids 0 to 64 are characters
PAD = 65
MASK = 66
CLS = 67
SEP = 68


def mask(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    selected = (torch.rand(x.shape) < 0.15) & (x < N_CHARACTERS)
    n_selected = selected.sum(1, keepdim=True).clamp(min=1)
    order = selected.cumsum(1) - 1
    kind = order / n_selected

    inputs = torch.where(selected & (kind < 0.8), MASK, x)
    is_random = selected & (kind >= 0.8) & (kind < 0.9)
    random_ids = torch.randint(N_CHARACTERS, x.shape)
    inputs = torch.where(is_random, random_ids, inputs)
    return inputs, torch.where(selected, x, -100)
