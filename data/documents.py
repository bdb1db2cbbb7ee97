"""Training windows that lie inside one document of a large text, or inside one of its folders."""

import torch
from torch.nn.functional import pad

from data.stored import StoredIds
from data.windows import Windows


class DocumentWindows(Windows):
    """Draws windows that do not cross the border of a document. Documents shorter than a window are not used."""

    def __init__(self, ids: torch.Tensor | StoredIds, documents: torch.Tensor, *, seed: int):
        """`documents` `[n_documents]` are the ascending offsets in `ids` at which documents end."""
        super().__init__(ids, seed=seed)
        self.documents = documents
        self._n_starts: dict[int, torch.Tensor] = {}  # by seq_len

    def n_starts(self, seq_len: int) -> torch.Tensor:
        """The number of starts of windows in each document and those before it, `[n_documents]`."""
        if seq_len not in self._n_starts:
            lengths = self.documents.diff(prepend=self.documents.new_zeros(1))
            self._n_starts = {seq_len: (lengths - seq_len + 1).clamp(min=0).cumsum(0)}
        return self._n_starts[seq_len]

    def starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        """Any start at which a window fits into a document."""
        n_starts = self.n_starts(seq_len)
        draws = self.drawn(n_starts, batch_size)
        document = torch.searchsorted(n_starts, draws, right=True)
        return self.documents[document] - seq_len - (n_starts[document] - 1 - draws)

    def drawn(self, n_starts: torch.Tensor, batch_size: int) -> torch.Tensor:
        """The numbers of starts, `[batch_size]`, each with equal probability."""
        return self._integers(int(n_starts[-1]), batch_size)


class WeightedWindows(DocumentWindows):
    """Draws each window from one of several folders, which have given probabilities."""

    def __init__(
        self,
        ids: torch.Tensor | StoredIds,
        documents: torch.Tensor,
        folders: torch.Tensor,
        weights: torch.Tensor,
        *,
        seed: int,
    ):
        """`folders` `[n_folders]` are the numbers of documents up to the end of each folder. The windows of each are in
        proportion to `weights` `[n_folders]`."""
        super().__init__(ids, documents, seed=seed)
        self.folders, self.weights = folders, weights

    def up_to_folders(self, n_starts: torch.Tensor) -> torch.Tensor:
        """The number of starts in each folder and those before it, `[n_folders]`."""
        return pad(n_starts, (1, 0))[self.folders]

    def drawn(self, n_starts: torch.Tensor, batch_size: int) -> torch.Tensor:
        """The numbers of starts, each with equal probability in its folder."""
        ends = self.up_to_folders(n_starts)
        folder = torch.multinomial(self.weights, batch_size, replacement=True, generator=self.generator)
        shares = torch.rand(batch_size, generator=self.generator, dtype=torch.float64)
        begins = pad(ends, (1, 0))[folder]
        return begins + (shares * (ends[folder] - begins)).long()
