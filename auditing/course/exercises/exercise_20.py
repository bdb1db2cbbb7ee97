"""Exercise 20: a masker with workers.

`mask(x)` returns inputs and labels for the ids `x`, all int64 `[batch, seq_len]`:

- It selects 15% of the characters, at random. Of these, 80% become MASK, 10% become
  a random character, and 10% stay.
- The label of a selected position is its id in `x`; all other labels are -100.
- PAD, CLS and SEP are never selected.
- A DataLoader copies the masker into its workers. Masks repeat if the seed of PyTorch is
  the same, and only then.
"""

import torch

N_CHARACTERS = 65  # ids 0 to 64 are characters
PAD = 65
MASK = 66
CLS = 67
SEP = 68


class Masker:
    """Masks batches of ids."""

    def __init__(self, seed: int = 47):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        draws = torch.rand((2, *x.shape), generator=self.generator)
        random_ids = torch.randint(N_CHARACTERS, x.shape, generator=self.generator)
        selected = (draws[0] < 0.15) & (x < N_CHARACTERS)
        replaced = torch.where(draws[1] < 0.8, MASK, random_ids)
        inputs = torch.where(selected & (draws[1] < 0.9), replaced, x)
        return inputs, torch.where(selected, x, -100)


mask = Masker()
