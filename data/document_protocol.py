"""The validation protocol for documents: their pieces are packed into windows, and no token sees
another document.

A document is cut into pieces of at most 256 tokens, from its beginning. Of the n tokens of a window
that are not special, round(0.15 * n) are replaced by `[MASK]`, drawn once from a fixed seed.
"""

import numpy as np
import torch
from torch.nn.functional import pad

from data import protocol
from data.protocol import (
    MASKING_PROB,
    WINDOW_LEN,
    ValidationSet,
    evenly_spaced,
    fixed_generator,
    ranks,
    with_masks,
)
from data.windows.packed import packed


def validation_set_of_documents(
    validation_ids: torch.Tensor,
    documents: torch.Tensor,
    *,
    n_ordinary: int,
    padding_token: int,
    device: torch.device | None = None,
    window_len: int = WINDOW_LEN,
) -> ValidationSet:
    """The windows and masks of validation documents, whose ends in `validation_ids` are `documents`
    `[n_documents]`, ascending.

    Ids from `n_ordinary` on are special. Of long texts, evenly spaced pieces are read, and at most
    1,024 windows, evenly spaced, are kept. Raises CorpusError if no token is masked.
    """
    n_tokens = protocol.MAX_WINDOWS * WINDOW_LEN
    begins, lengths = pieces_of(documents, window_len)
    n_pieces = max(1, n_tokens * len(lengths) // int(lengths.sum()))
    kept = evenly_spaced(len(lengths), n_pieces)
    begins = begins[kept]
    lengths = lengths[kept]

    cells = packed(lengths.tolist(), len(lengths), window_len)
    n_windows = 1 + max(cell.window for cell in cells if cell)
    windows = torch.full((n_windows, window_len), padding_token)
    numbers = torch.zeros_like(windows)
    for begin, length, cell in zip(
        begins.tolist(), lengths.tolist(), cells, strict=True
    ):
        assert cell  # each piece fits into a window of its own
        columns = slice(cell.column, cell.column + length)
        windows[cell.window, columns] = validation_ids[begin : begin + length].long()
        numbers[cell.window, columns] = cell.number

    kept = evenly_spaced(n_windows, n_tokens // window_len)
    windows = windows[kept].to(device)
    maskable = windows < n_ordinary
    counts = np.rint(MASKING_PROB * maskable.sum(1).cpu().numpy())
    drawn = ranks(fixed_generator(), maskable.cpu().numpy()) < counts[:, None]
    numbers = numbers[kept].to(device)
    return with_masks(
        ValidationSet(windows, torch.from_numpy(drawn), maskable, numbers)
    )


def pieces_of(
    documents: torch.Tensor, longest: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The begins and the lengths of the pieces of at most `longest` tokens into which documents
    with these ends are cut, from their beginning; both `[n_pieces]`."""
    lengths = documents.diff(prepend=documents.new_zeros(1))
    n_pieces = -(-lengths // longest)
    document = torch.repeat_interleave(torch.arange(len(documents)), n_pieces)
    first = pad(n_pieces.cumsum(0), (1, 0))[document]
    begins_in_document = longest * (torch.arange(len(document)) - first)
    begins = (documents - lengths)[document] + begins_in_document
    return begins, (lengths[document] - begins_in_document).clamp(max=longest)
