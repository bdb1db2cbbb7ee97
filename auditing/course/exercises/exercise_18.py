"""Exercise 18: three kinds.

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
    selected = (torch.rand(x.shape) < 0.15) & (x < N_CHARACTERS)
    unchanged = selected & (torch.rand(x.shape) < 0.1)
    is_random = selected & (torch.rand(x.shape) < 0.1)

    inputs = x.clone()
    inputs[selected & ~unchanged] = MASK
    random_ids = torch.randint(N_CHARACTERS, x.shape)
    inputs[is_random] = random_ids[is_random]
    labels = torch.where(selected, x, -100)
    return inputs, labels
