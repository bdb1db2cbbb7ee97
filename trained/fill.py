"""Fills the blanks of texts, most confident guess first."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trained.batches import batches_by_length, padded, pieces
from trained.load import Trained
from trained.template import Template, readable


class Guess(NamedTuple):
    """The most probable tokens of a blank; it is filled with the first."""

    offset: int  # in the filled text
    # tokens, by default characters, and their probabilities, best first
    candidates: list[tuple[str, float]]

    @property
    def probability(self) -> float:
        return self.candidates[0][1]


class Filled(NamedTuple):
    """A text without blanks, and the guesses in it, in the order of the text."""

    text: str
    guesses: list[Guess]


def fill(
    trained: Trained,
    templates: Sequence[Template],
    *,
    n_candidates: int = 1,
    never: str = "",
) -> list[Filled]:
    """Fill the blanks of texts, with tokens that have no character of `never`; results in the same
    order.

    Each pass of the model fills the blank of each text whose best guess is the most probable. Later
    passes see it. A text longer than the windows in training is read in overlapping pieces.
    """
    cut = [pieces(len(template.ids), trained.longest) for template in templates]
    windows = []
    for template, of_text in zip(templates, cut, strict=True):
        windows += [template.ids[window] for window, _ in of_text]
    filled: dict[int, tuple[Tensor, list[Guess]]] = {}
    for batch in batches_by_length(windows, equal_lengths=not trained.takes_mask):
        of_batch = _fill(trained, [windows[i] for i in batch], n_candidates, never)
        filled |= zip(batch, of_batch, strict=True)

    in_order = iter([filled[i] for i in range(len(windows))])

    return [
        _joined(template, of_text, in_order)
        for template, of_text in zip(templates, cut, strict=True)
    ]


def is_utf8(surface: bytes) -> bool:
    """Whether a token has whole characters only. Others fill no blank that is alone."""
    try:
        surface.decode()
    except UnicodeDecodeError:
        return False
    return True


def _joined(
    template: Template,
    of_text: Sequence[tuple[slice, slice]],
    filled: Iterator[tuple[Tensor, list[Guess]]],
) -> Filled:
    """The filled text of windows and the parts that they decide; `filled` yields the ids and the
    guesses by position of each window."""
    parts = []
    guesses = []
    for window, part in of_text:
        ids, of_window = next(filled)
        parts.append(ids[part.start - window.start : part.stop - window.start])
        for guess in sorted(of_window):
            if part.start <= window.start + guess.offset < part.stop:
                guesses.append(guess)

    text, offsets = template.filled(torch.cat(parts))
    with_offsets = [
        guess._replace(offset=offset)
        for guess, offset in zip(guesses, offsets, strict=True)
    ]

    return Filled(text, with_offsets)


@torch.inference_mode()
def _fill(
    trained: Trained, texts: Sequence[Tensor], n_candidates: int, never: str
) -> list[tuple[Tensor, list[Guess]]]:
    """The filled ids of windows of one batch, and the guesses with their positions."""
    vocabulary = trained.vocabulary
    ids, mask = padded(texts)
    excluded: list[int] = []
    for character in never:
        part = character.encode()
        excluded += [
            i for i, surface in enumerate(vocabulary.surfaces) if part in surface
        ]

    parts_of_characters = [
        i for i, surface in enumerate(vocabulary.surfaces) if not is_utf8(surface)
    ]
    is_blank = F.pad(ids == vocabulary.mask_token, (1, 1))
    is_alone = is_blank[:, 1:-1] & ~is_blank[:, :-2] & ~is_blank[:, 2:]

    n_candidates = min(n_candidates, vocabulary.n_ordinary - len(excluded))
    guesses: list[list[Guess]] = [[] for _ in ids]
    token = cache(lambda i: vocabulary.decode([i]))
    while True:
        rows = (ids == vocabulary.mask_token).any(1).nonzero().flatten()
        if not len(rows):
            break
        inputs = ids[rows]
        blanks = (inputs == vocabulary.mask_token).flatten()
        padding = {} if mask is None else {"attention_mask": mask[rows]}
        visible = readable(inputs, vocabulary.mask_token)
        logits = trained.model(visible, blanks.nonzero().flatten(), **padding)
        logits = logits[:, : vocabulary.n_ordinary]
        logits[:, excluded] = -torch.inf
        if parts_of_characters:
            alone = is_alone[rows].flatten()[blanks].nonzero()
            logits[alone, torch.tensor(parts_of_characters)] = -torch.inf
        probabilities = logits.float().softmax(-1)  # [n_blanks, n_ordinary]
        confidence = torch.full(blanks.shape, -1.0).masked_scatter(
            blanks, probabilities.amax(-1)
        )
        columns = confidence.view(inputs.shape).argmax(1)
        nth_blank = (
            blanks.cumsum(0).view(inputs.shape).gather(1, columns[:, None]).flatten()
            - 1
        )
        best = probabilities[nth_blank].topk(n_candidates)
        ids[rows, columns] = best.indices[:, 0]
        tokens = best.indices.tolist()
        shares = best.values.tolist()
        for i, (row, column) in enumerate(
            zip(rows.tolist(), columns.tolist(), strict=True)
        ):
            names = [token(each) for each in tokens[i]]
            guesses[row].append(Guess(column, list(zip(names, shares[i], strict=True))))

    filled = [row[: len(text)] for row, text in zip(ids, texts, strict=True)]

    return list(zip(filled, guesses, strict=True))
