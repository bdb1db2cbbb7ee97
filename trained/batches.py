"""Batches of texts of different lengths, and overlapping windows of long ones."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# per pass of the model, padding included; more would leave the processor's cache
TOKENS_AT_ONCE = 4_096


def batches_by_length(
    texts: Sequence[Tensor], equal_lengths: bool = False
) -> Iterator[list[int]]:
    """The numbers of the texts `[length]`, in batches of similar lengths, or of `equal_lengths`."""
    lengths = [len(text) for text in texts]
    batch: list[int] = []
    # the first is the longest
    for number in sorted(range(len(texts)), key=lengths.__getitem__, reverse=True):
        if batch:
            longest = lengths[batch[0]]
            is_full = (len(batch) + 1) * longest > TOKENS_AT_ONCE
            if is_full or (equal_lengths and lengths[number] < longest):
                yield batch
                batch = []

        batch.append(number)

    if batch:
        yield batch


def padded(texts: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Token ids `[batch, longest]` of texts `[length]`, 0 at padding, and the attention mask, which
    is False there.

    The mask is None if all texts have the same length: attention is faster without one.
    """
    ids = pad_sequence(list(texts), batch_first=True)
    lengths = torch.tensor([len(text) for text in texts])
    if (lengths == ids.shape[1]).all():
        return ids, None
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def pieces(length: int, longest: int) -> list[tuple[slice, slice]]:
    """Cuts a text into overlapping windows of at most `longest` tokens. Returns each window and the
    part of the text that it decides: there, a token has at least a quarter of a window on each
    side, or the end of the text."""
    if length <= longest:
        return [(slice(0, length), slice(0, length))]
    starts = [*range(0, length - longest, max(1, longest // 2)), length - longest]
    ends = [
        (start + longest + next_start) // 2 for start, next_start in pairwise(starts)
    ]
    bounds = [0, *ends, length]
    windows = [slice(start, start + longest) for start in starts]

    return list(zip(windows, map(slice, bounds[:-1], bounds[1:]), strict=True))
