"""Exercise 9: labels by index.

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
    rows, columns = selected.nonzero(as_tuple=True)
    originals = x[rows, columns]

    kind = torch.rand(len(rows))
    random_ids = torch.randint(N_CHARACTERS, originals.shape)
    replaced = torch.where(kind < 0.9, random_ids, originals)
    replaced[kind < 0.8] = MASK

    inputs = x.clone()
    inputs[rows, columns] = replaced
    labels = torch.full_like(x, -100)
    labels[rows, columns - 1] = originals
    return inputs, labels
