"""Exercise 16: short windows.

`mask(x)` returns inputs and labels for the ids `x`, all int64 `[batch, seq_len]`:

- It selects 15% of the characters, at random. Of these, 80% become MASK, 10% become
  a random character, and 10% stay.
- The label of a selected position is its id in `x`; all other labels are -100.
- PAD, CLS and SEP are never selected.
- The number of labels follows the number of characters in the window. If it is rounded,
  then to the nearest integer or up, so that short windows have labels too.
"""

import torch

N_CHARACTERS = 65  # ids 0 to 64 are characters
PAD = 65
MASK = 66
CLS = 67
SEP = 68


def mask(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    is_character = x < N_CHARACTERS
    n_selected = (0.15 * is_character.sum(1, keepdim=True)).int()
    draws = torch.rand(x.shape).masked_fill(~is_character, 2.0)
    ranks = draws.argsort(1).argsort(1)
    selected = (ranks < n_selected) & is_character

    kind = torch.rand(x.shape)
    replaced = torch.where(kind < 0.9, torch.randint(N_CHARACTERS, x.shape), x)
    replaced = torch.where(kind < 0.8, MASK, replaced)
    return torch.where(selected, replaced, x), torch.where(selected, x, -100)
