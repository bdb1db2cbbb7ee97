"""Draws places in the documents or folders of a text, in which folders may have given shares."""

import torch
from torch.nn.functional import pad

from data.text.stored import StoredIds
from data.windows import Windows


class Ranges:
    """Draws places in ranges, in proportion to their sizes inside of each group. Ranges are
    documents or folders, and groups are folders."""

    def __init__(
        self,
        sizes: torch.Tensor,
        groups: torch.Tensor | None = None,
        shares: torch.Tensor | None = None,
    ):
        """`sizes` `[n_ranges]` are the numbers of places in the ranges. `groups` `[n_groups]` are
        the numbers of ranges up to the end of each group, and `shares` `[n_groups]` are
        proportional to its draws. Without them, all ranges are one group."""
        self.ends = sizes.cumsum(0)
        ends_of_groups = self.ends[-1:]
        self.shares = torch.ones(1)
        if groups is not None and shares is not None:
            ends_of_groups = pad(self.ends, (1, 0))[groups]
            self.shares = shares
        self.n_places = ends_of_groups.diff(prepend=ends_of_groups.new_zeros(1))
        self._begins = ends_of_groups - self.n_places

    def draw(
        self, n: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Independent draws: ranges `[n]` and places in them `[n]`, from 0 on."""
        group = torch.multinomial(self.shares, n, replacement=True, generator=generator)
        draws = torch.rand(n, generator=generator, dtype=torch.float64)
        place = self._begins[group] + (draws * self.n_places[group]).long()
        chosen = torch.searchsorted(self.ends, place, right=True)
        return chosen, place - pad(self.ends, (1, 0))[chosen]


class FolderWindows(Windows):
    """Draws windows anywhere in a folder, each folder with its share."""

    def __init__(
        self,
        ids: torch.Tensor | StoredIds,
        folders: torch.Tensor,
        shares: torch.Tensor | None,
        *,
        seed: int,
    ):
        """`folders` `[n_folders]` are the ascending offsets in `ids` at which folders end. Their
        windows are in proportion to `shares` `[n_folders]`, or to their tokens."""
        super().__init__(ids, seed=seed)
        self.folders = pad(folders, (1, 0))
        self.shares = shares

    def ranges(self, seq_len: int) -> Ranges:
        """The starts of windows in each folder."""
        n_starts = (self.folders.diff() - seq_len + 1).clamp(min=0)
        each_its_own = torch.arange(1, len(n_starts) + 1)
        return Ranges(n_starts, each_its_own, self.shares)

    def starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        folder, place = self.ranges(seq_len).draw(batch_size, self.generator)
        return self.folders[folder] + place
