"""Training windows that lie inside one document of a large text."""

import torch

from data.stored import StoredIds
from data.windows import Windows


class DocumentWindows(Windows):
    """Draws windows that do not cross the border of a document. Documents shorter than a window are not used."""

    def __init__(self, ids: torch.Tensor | StoredIds, documents: torch.Tensor, *, seed: int):
        """`documents` `[n_documents]` are the ascending offsets in `ids` at which documents end."""
        super().__init__(ids, seed=seed)
        self.documents = documents
        self._n_starts: dict[int, torch.Tensor] = {}  # by seq_len

    def starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        """Any start at which a window fits into a document, with equal probability."""
        if seq_len not in self._n_starts:
            lengths = self.documents.diff(prepend=self.documents.new_zeros(1))
            self._n_starts = {seq_len: (lengths - seq_len + 1).clamp(min=0).cumsum(0)}
        n_starts = self._n_starts[seq_len]  # in each document and those before it
        draws = self._integers(int(n_starts[-1]), batch_size)
        document = torch.searchsorted(n_starts, draws, right=True)
        return self.documents[document] - seq_len - (n_starts[document] - 1 - draws)
