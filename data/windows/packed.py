"""Training windows into which pieces of documents are packed, so that no token is left out."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from data.text.stored import StoredIds
from data.windows import WindowBatch, Windows
from data.windows.ranges import Ranges

# tokens that wait, in windows: with more pieces to choose from, less padding is needed
WAITING = 8


class Cell(NamedTuple):
    """The place of a piece in a batch of windows."""

    window: int
    column: int
    number: int  # of the piece in its window, from 1 on


class PackedWindows(Windows):
    """Packs pieces of documents into windows. Padding fills the rest.

    Pieces are drawn independently. A document that is longer than a window is cut where a window
    lies that begins anywhere, so that it covers at least one of the document's tokens; any other
    document is one piece. The chances are such that each token is drawn equally often. Pieces that
    do not fit into a batch wait for the next one.
    """

    def __init__(
        self,
        ids: torch.Tensor | StoredIds,
        documents: torch.Tensor,
        folders: torch.Tensor | None = None,
        shares: torch.Tensor | None = None,
        *,
        padding_token: int,
        seed: int,
        gives_begins: bool = False,
    ):
        """`documents` `[n_documents]` are the ascending offsets in `ids` at which documents end,
        and `folders` `[n_folders]` the numbers of documents up to the end of each folder. The
        pieces of each folder are in proportion to `shares` `[n_folders]`; without them, to its
        tokens. `gives_begins`: batches say where documents begin."""
        super().__init__(ids, seed=seed)
        self.documents = pad(documents, (1, 0))
        self.folders = folders
        self.shares = shares
        self.padding_token = padding_token
        self.gives_begins = gives_begins
        self._n_begins = 0
        self._ranges: tuple[int, Ranges] | None = None  # of windows of a length
        self._waiting = torch.empty(2, 0, dtype=torch.int64)  # begins and lengths
        self._seq_len = 0

    def ranges(self, seq_len: int) -> Ranges:
        """The starts of windows that cover tokens of each document. A document that is one piece
        has as many as a window has tokens."""
        if self._ranges is None or self._ranges[0] != seq_len:
            lengths = self.documents.diff()
            n_starts = torch.where(
                lengths > seq_len, lengths + seq_len - 1, seq_len * (lengths > 0)
            )
            ranges = Ranges(n_starts, self.folders, self.shares)
            self._ranges = (seq_len, ranges)
        return self._ranges[1]

    def pieces(self, n: int, seq_len: int) -> torch.Tensor:
        """The begins and the lengths of pieces in the text, `[2, n]`; each one is drawn
        independently."""
        document, place = self.ranges(seq_len).draw(n, self.generator)
        begin = self.documents[document]
        length = self.documents[document + 1] - begin
        start = torch.where(length > seq_len, place - (seq_len - 1), 0)
        first = start.clamp(min=0)
        last = torch.minimum(start + seq_len, length)
        return torch.stack([begin + first, last - first])

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch:
        """A batch of windows, `[batch_size, seq_len]`. The attention mask numbers the pieces of
        each window; the offsets of padding are 0."""
        pieces = self._enough_pieces(batch_size * seq_len, seq_len)
        cells = packed(pieces[1].tolist(), batch_size, seq_len)
        fits = torch.tensor([cell is not None for cell in cells])
        self._waiting = pieces[:, ~fits]
        begins, lengths = pieces[:, fits]
        window, column, number = torch.tensor([cell for cell in cells if cell]).T

        # the offset of each token in the text, and its cell in the flattened batch
        piece = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        rank = torch.arange(len(piece)) - (lengths.cumsum(0) - lengths)[piece]
        offsets = begins[piece] + rank
        at = (window * seq_len + column)[piece] + rank
        shape = (batch_size, seq_len)

        def spread(values: torch.Tensor, elsewhere: int) -> torch.Tensor:
            filled = torch.full((batch_size * seq_len,), elsewhere)
            return filled.scatter(0, at, values).view(shape)

        documents = spread(number[piece], 0)
        begins = None
        if self.gives_begins:
            begins = begins_of(documents, self._n_begins)
            self._n_begins = len(begins)
        return WindowBatch(
            spread(self.ids[offsets], self.padding_token),
            spread(offsets, 0),
            documents,
            begins,
        )

    def _enough_pieces(self, n_tokens: int, seq_len: int) -> torch.Tensor:
        """Those that wait, and as many new ones as fill `n_tokens`."""
        if seq_len != self._seq_len:  # a new stage cuts anew
            self._waiting = self._waiting[:, :0]
            self._seq_len = seq_len
        mean_length = seq_len * len(self.ids) / int(self.ranges(seq_len).ends[-1])
        pieces = self._waiting
        while (missing := n_tokens + WAITING * seq_len - int(pieces[1].sum())) > 0:
            new = self.pieces(max(1, int(missing / mean_length)), seq_len)
            pieces = torch.cat([pieces, new], dim=1)
        return pieces

    def state_dict(self) -> dict[str, Any]:
        waiting = {"waiting": self._waiting, "seq_len": self._seq_len}
        return super().state_dict() | waiting

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._waiting = state["waiting"]
        self._seq_len = state["seq_len"]


def begins_of(documents: torch.Tensor, fewest: int) -> torch.Tensor:
    """The offsets `[n]` in the flattened windows at which documents and padding begin, from the
    documents' numbers `[batch, seq_len]`. The end fills the rest of a power of two, at least `fewest`, so that few
    shapes occur."""
    is_first = documents.diff(dim=1, prepend=documents[:, :1] - 1) != 0
    begins = is_first.flatten().nonzero().flatten()
    size = max(fewest, 2 ** len(begins).bit_length())
    filled = begins.new_full((size,), documents.numel(), dtype=torch.int32)
    filled[: len(begins)] = begins
    return filled


def packed(lengths: Sequence[int], n_windows: int, seq_len: int) -> list[Cell | None]:
    """The place of each piece, the longest first, in the window with the least sufficient room;
    None if no window has it."""
    cells: list[Cell | None] = [None] * len(lengths)
    rooms = [(seq_len, window) for window in range(n_windows)]  # ascending
    n_pieces = [0] * n_windows
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        fitting = bisect_left(rooms, (lengths[i], 0))
        if fitting == len(rooms):
            continue
        room, window = rooms.pop(fitting)
        n_pieces[window] += 1
        cells[i] = Cell(window, seq_len - room, n_pieces[window])
        if room > lengths[i]:
            insort(rooms, (room - lengths[i], window))
    return cells
