"""Exercise 6: windows of different lengths.

`mask(x)` returns inputs and labels for the ids `x`, all int64 `[batch, seq_len]`:

- It selects 15% of the characters, at random. Of these, 80% become MASK, 10% become
  a random character, and 10% stay.
- The label of a selected position is its id in `x`; all other labels are -100.
- Special tokens are never selected. Short windows end in PAD.
"""

import torch

N_CHARACTERS = 65  # ids 0 to 64 are characters
PAD = 65
MASK = 66
CLS = 67
SEP = 68
SPECIAL = [MASK, CLS, SEP]


def mask(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    selected = torch.rand(x.shape) < 0.15
    selected &= ~torch.isin(x, torch.tensor(SPECIAL))
    draw = torch.rand(x.shape)

    inputs = x.clone()
    inputs[selected & (draw < 0.8)] = MASK
    is_random = selected & (draw >= 0.9)
    inputs[is_random] = torch.randint_like(x, N_CHARACTERS)[is_random]
    labels = torch.full_like(x, -100)
    labels[selected] = x[selected]
    return inputs, labels
