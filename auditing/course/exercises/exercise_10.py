"""Exercise 10: named shares.

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
RATE = 0.15
MASKED = 0.8
RANDOM = 0.1


def mask(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    selected = (torch.rand(x.shape) < RATE) & (x < N_CHARACTERS)
    kind = torch.rand(x.shape)
    is_masked = selected & (kind < MASKED)
    is_random = selected & ~is_masked & (kind < RATE + RANDOM)

    inputs = torch.where(is_masked, MASK, x)
    random_ids = torch.randint(N_CHARACTERS, x.shape)
    inputs = torch.where(is_random, random_ids, inputs)
    return inputs, torch.where(selected, x, -100)
