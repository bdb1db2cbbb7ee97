"""Draws units without replacement, in proportion to their weights, until a budget of characters is
spent.

Unit i finishes at time E_i / w_i with E_i ~ Exponential(1). The units that finish first are
selected (Efraimidis and Spirakis 2006; the same as Gumbel top-k, Kool et al. 2019). The budget is
exact, so the last unit may be selected in part: a stretch that begins at a random character of the
unit and continues at the unit's first character when it reaches the end. Each character of that
unit is thus selected with the same probability.
"""

import torch

# replaces a draw of 0, which would never finish; all other draws are above it
SMALLEST_DRAW = 2**-25


def sampling_order(
    units: torch.Tensor,
    weights: torch.Tensor,
    draws: torch.Tensor,
    selectable: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The columns of each window in the order of selection, `[batch, seq_len]`, and their finishing
    times.

    `units` and `weights` `[batch, seq_len]` come from a `Segmenter`. The time is infinite for
    characters that must not be selected: their unit has a weight of 0 or less, or they are not
    `selectable`. `draws` `[batch, seq_len]` are uniform in [0, 1). A unit uses the draws of its
    first two characters, and the weight of the first.
    """
    seq_len = units.shape[1]
    first = first_columns(units)

    # When does each unit finish? The draw of its first character decides.
    exponentials = -draws.clamp(min=SMALLEST_DRAW).log()
    times = torch.where(weights > 0, exponentials / weights, torch.inf).gather(1, first)
    if selectable is not None:
        times = times.masked_fill(~selectable, torch.inf)

    # At which of its characters does it begin? The draw of its second character decides.
    n_characters = torch.zeros_like(first).scatter_add_(
        1, first, torch.ones_like(first)
    )
    lengths = n_characters.gather(1, first)
    begin = (draws.gather(1, (first + 1) % seq_len) * lengths).long()

    # Rotate each unit, so that it begins there, and sort the units by their times.
    rank = (torch.arange(seq_len, device=units.device) - first) % seq_len
    columns = (first + (rank + begin) % lengths) % seq_len
    # A stable sort keeps the characters of a unit, which finish together, in their order.
    finished = times.gather(1, columns).sort(dim=1, stable=True)
    return columns.gather(1, finished.indices), finished.values


def unit_begins(units: torch.Tensor) -> torch.Tensor:
    """Whether each character is in another unit than the character before it, bool `[batch,
    seq_len]`."""
    begins = torch.ones_like(units, dtype=torch.bool)
    begins[:, 1:] = units[:, 1:] != units[:, :-1]
    return begins


def first_columns(units: torch.Tensor) -> torch.Tensor:
    """For each character, the column where its unit begins, `[batch, seq_len]`.

    The window is a circle: if its first and last character have the same unit, that unit begins
    near the end.
    """
    columns = torch.arange(units.shape[1], device=units.device).expand_as(units)
    first = torch.where(unit_begins(units), columns, 0).cummax(1).values
    continues = (units[:, :1] == units[:, -1:]) & (first == 0)
    return torch.where(continues, first[:, -1:], first)
