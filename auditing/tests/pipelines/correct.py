"""Correct pipelines with windows of other forms: pairs, packed lines, spans, and lengths that
differ."""

from itertools import pairwise

import torch
from plain import BATCH, IGNORED, SEQ_LEN, Encoder, mask, target
from torch.nn.utils.rnn import pad_sequence

N_HEADS = 4


def padded(rows, tokens):
    """Masked and padded rows, whose padding nobody attends to."""
    x = pad_sequence(rows, batch_first=True, padding_value=tokens.padding)
    inputs, labels = mask(x, tokens)
    return {
        "inputs": inputs,
        "labels": labels,
        "src_key_padding_mask": x == tokens.padding,
    }


def of_pairs(x, tokens, training):
    """Two pieces of the text, the second one from another window for every other row; both have any
    length."""
    ends = torch.randint(9, SEQ_LEN // 2 - 3, (len(x), 2)).tolist()
    others = [x[i] if i % 2 else x[i - 1] for i in range(len(x))]
    cls = x.new_tensor([tokens.cls])
    sep = x.new_tensor([tokens.sep])
    rows = [
        torch.cat([cls, x[i, :a], sep, others[i][-b:], sep])
        for i, (a, b) in enumerate(ends)
    ]
    return padded(rows, tokens)


def of_any_length(x, tokens, training):
    """Windows cut at random, sorted by length."""
    lengths = torch.randint(9, SEQ_LEN, (len(x),)).sort().values.tolist()
    return padded([row[:n] for row, n in zip(x, lengths, strict=True)], tokens)


def of_spans(x, tokens, training):
    """One span of up to 10 characters in each quarter of a window, as in SpanBERT."""
    places = torch.arange(SEQ_LEN)
    quarter = SEQ_LEN // 4
    starts = torch.randint(quarter, (len(x), 4)).repeat_interleave(quarter, 1)
    lengths = torch.randint(1, 11, (len(x), 4)).repeat_interleave(quarter, 1)
    selected = (places % quarter >= starts) & (places % quarter < starts + lengths)
    return torch.where(selected, tokens.mask, x), torch.where(selected, x, IGNORED)


class Packed(Encoder):
    """Attends within a line only."""

    def forward(self, inputs, position_ids, lines):
        apart = lines[:, :, None] != lines[:, None]
        return super().forward(
            inputs, position_ids, mask=apart.repeat_interleave(N_HEADS, 0)
        )


def packed_batches(ids, tokens, seed, training):
    """Lines of at least 8 characters with their ends, one after the other with [SEP] between, cut
    into windows."""
    ends = (ids == tokens.first_character).nonzero()[:, 0].tolist()
    lines = [ids[a + 1 : b + 1] for a, b in pairwise(ends) if b - a > 8]

    while lines:
        order = (
            torch.randperm(len(lines))[: 3 * BATCH]
            if training
            else torch.arange(len(lines))
        )
        sep = ids.new_tensor([tokens.sep])
        parts = []
        for i in order.tolist():
            parts += [lines[i], sep]

        x = torch.cat(parts)
        for rows in x[: len(x) // SEQ_LEN * SEQ_LEN].view(-1, SEQ_LEN).split(BATCH):
            numbers = (rows == tokens.sep).cumsum(1)
            places = torch.arange(SEQ_LEN).expand_as(rows)
            starts = torch.where(rows == tokens.sep, places, 0).cummax(1).values
            inputs, labels = mask(rows, tokens)
            yield {
                "inputs": inputs,
                "labels": labels,
                "position_ids": places - starts,
                "lines": numbers,
            }
        if not training:
            return


pairs = target(batches=of_pairs)
any_length = target(batches=of_any_length)
spans = target(batches=of_spans)
packed = target(Packed, make_batches=packed_batches)
