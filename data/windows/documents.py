"""Training windows that lie inside one document of a large text, from folders with given
probabilities."""

import torch
from torch.nn.functional import pad

from data.text.stored import StoredIds
from data.windows import Windows


class DocumentWindows(Windows):
    """Draws windows that do not cross the border of a document. Documents shorter than a window are
    not used."""

    def __init__(
        self,
        ids: torch.Tensor | StoredIds,
        documents: torch.Tensor,
        folders: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
        *,
        seed: int,
    ):
        """`documents` `[n_documents]` are the ascending offsets in `ids` at which documents end,
        and `folders` `[n_folders]` the numbers of documents up to the end of each folder. The
        windows of each folder are in proportion to `weights` `[n_folders]`. Without them, all
        documents are one folder."""
        super().__init__(ids, seed=seed)
        self.documents = documents
        self.folders = torch.tensor([len(documents)]) if folders is None else folders
        self.weights = torch.ones(1) if weights is None else weights
        self._n_starts: dict[int, torch.Tensor] = {}  # by seq_len

    def n_starts(self, seq_len: int) -> torch.Tensor:
        """The number of starts of windows in each document and those before it, `[n_documents]`."""
        if seq_len not in self._n_starts:
            lengths = self.documents.diff(prepend=self.documents.new_zeros(1))
            self._n_starts = {seq_len: (lengths - seq_len + 1).clamp(min=0).cumsum(0)}
        return self._n_starts[seq_len]

    def up_to_folders(self, n_starts: torch.Tensor) -> torch.Tensor:
        """The number of starts in each folder and those before it, `[n_folders]`."""
        return pad(n_starts, (1, 0))[self.folders]

    def starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        """Any start at which a window fits into a document, each with equal probability in its
        folder."""
        n_starts = self.n_starts(seq_len)
        ends = self.up_to_folders(n_starts)
        folder = torch.multinomial(
            self.weights, batch_size, replacement=True, generator=self.generator
        )
        shares = torch.rand(batch_size, generator=self.generator, dtype=torch.float64)
        begins = pad(ends, (1, 0))[folder]
        draws = begins + (shares * (ends[folder] - begins)).long()
        document = torch.searchsorted(n_starts, draws, right=True)
        return self.documents[document] - seq_len - (n_starts[document] - 1 - draws)
