"""Exercise 11: one draw after the other.

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
    labels = x.clone()
    selected = torch.bernoulli(torch.full(x.shape, 0.15)).bool()
    selected &= x < N_CHARACTERS
    labels[~selected] = -100

    inputs = x.clone()
    is_masked = torch.bernoulli(torch.full(x.shape, 0.8)).bool() & selected
    inputs[is_masked] = MASK
    is_random = torch.bernoulli(torch.full(x.shape, 0.1)).bool() & selected & ~is_masked
    inputs[is_random] = torch.randint(N_CHARACTERS, x.shape)[is_random]
    return inputs, labels
