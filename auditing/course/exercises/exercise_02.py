"""Exercise 2: the share that is predicted.

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


def mask(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    is_special = torch.isin(x, torch.tensor([PAD, CLS, SEP]))
    selected = (torch.rand(x.shape) > RATE) & ~is_special
    kind = torch.rand(x.shape)
    inputs = x.clone()
    inputs[selected & (kind < 0.8)] = MASK
    is_random = selected & (kind >= 0.8) & (kind < 0.9)
    inputs[is_random] = torch.randint(N_CHARACTERS, (int(is_random.sum()),))
    return inputs, x.masked_fill(~selected, -100)
