"""Fills the blanks of texts, most confident guess first."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from data.vocabulary import Vocabulary
from trained.batches import batches_by_length, padded, pieces
from trained.load import Trained

MOST_BLANKS = 10_000  # of a text; a pass of the model fills one blank of each window
SYMBOL = re.compile(
    r"\\(?P<escaped>[\\_\[])|(?P<blank>\[MASK\]|_)|(?P<plain>.)", re.DOTALL
)


class Guess(NamedTuple):
    """The most probable tokens of a blank; it is filled with the first."""

    offset: (
        int  # of the token that the blank was; `in_template` has that of its character
    )
    # tokens, by default characters, and their probabilities, best first
    candidates: list[tuple[str, float]]

    @property
    def probability(self) -> float:
        return self.candidates[0][1]


class Filled(NamedTuple):
    """A text without blanks, and the guesses in it, in the order of the text."""

    text: str
    guesses: list[Guess]
    ids: Tensor  # [n]


def encode(
    template: str,
    trained: Trained,
    *,
    unknown: bool = False,
    most_blanks: int = MOST_BLANKS,
) -> Tensor:
    r"""Token ids `[n]` of a text with blanks, which are `_` or `[MASK]`; each is one token.

    `\_`, `\[` and `\\` stand for `_`, `[` and `\`. With `unknown`, characters that the vocabulary
    does not have are blanks; without it they raise ValueError. So do more than `most_blanks`
    blanks.
    """
    vocabulary = trained.vocabulary
    mask_token = vocabulary.mask_token
    ids = [torch.empty(0, dtype=torch.int64)]
    for is_blank, part in parts_of(template, vocabulary, unknown):
        if is_blank:
            ids.append(torch.full((len(part),), mask_token))
        else:
            ids.append(vocabulary.encode(part))

    whole = torch.cat(ids)
    n_blanks = int((whole == mask_token).sum())
    if n_blanks > most_blanks:
        raise ValueError(
            f"the text has {n_blanks:,} blanks, too many to fill: {most_blanks:,} at most"
        )

    return whole


def parts_of(
    template: str, vocabulary: Vocabulary, unknown: bool
) -> Iterator[tuple[bool, str]]:
    """The parts of a template, as in `encode`: whether one is blanks, and its text without escapes,
    one character per blank."""
    known = set(vocabulary.characters) if unknown and vocabulary.is_characters else None

    def is_blank(symbol: re.Match[str]) -> bool:
        return bool(symbol["blank"]) or (
            known is not None and known.isdisjoint(symbol.groups())
        )

    for are_blank, symbols in groupby(SYMBOL.finditer(template), is_blank):
        texts = [symbol["escaped"] or symbol["plain"] or "_" for symbol in symbols]
        yield are_blank, "".join(texts)


def in_template(
    template: str, ids: Tensor, vocabulary: Vocabulary, unknown: bool = False
) -> tuple[str, list[int]]:
    """The text of a template whose blanks are filled with the `ids` at their places; more ids than
    it has follow it.

    The template's own text stays as it is, even where the tokenizer changes it. Also returns the
    offset of each blank in the text.
    """
    text = ""
    offsets = []
    n_before = 0
    has_spaces = vocabulary.is_characters or len(vocabulary.encode(" ")) > 0
    for is_blank, part in parts_of(template, vocabulary, unknown):
        if not is_blank:
            text += part
            n_before += len(vocabulary.encode(part))
            continue

        tokens = ids[n_before : n_before + len(part)]
        n_before += len(part)
        filled = vocabulary.decode(tokens)
        # the token of a word stands for the space before it too
        n_left_out = 0
        if not has_spaces and filled[:1].isspace() and (not text or text[-1].isspace()):
            n_left_out = 1
        for i in range(len(part)):
            n_of_earlier = len(vocabulary.decode(tokens[:i]))
            offsets.append(max(0, len(text) - n_left_out + n_of_earlier))
        text += filled[n_left_out:]

    return text + vocabulary.decode(ids[n_before:]), offsets


def fill(
    trained: Trained, texts: Sequence[Tensor], *, n_candidates: int = 1, never: str = ""
) -> list[Filled]:
    """Fill the blanks of texts from `encode`, with tokens that have no character of `never`;
    results in the same order.

    Each pass of the model fills the blank of each text whose best guess is the most probable. Later
    passes see it. A text longer than the windows in training is read in overlapping pieces.
    """
    cut = [pieces(len(text), trained.longest) for text in texts]
    windows = []
    for text, of_text in zip(texts, cut, strict=True):
        windows += [text[window] for window, _ in of_text]
    filled: dict[int, tuple[Tensor, list[Guess]]] = {}
    for batch in batches_by_length(windows, equal_lengths=not trained.takes_mask):
        of_batch = _fill(trained, [windows[i] for i in batch], n_candidates, never)
        filled |= zip(batch, of_batch, strict=True)

    in_order = iter([filled[i] for i in range(len(windows))])

    return [_joined(trained.vocabulary, of_text, in_order) for of_text in cut]


def _joined(
    vocabulary: Vocabulary,
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
            position = window.start + guess.offset
            if part.start <= position < part.stop:
                guesses.append(guess._replace(offset=position))

    ids = torch.cat(parts)

    return Filled(vocabulary.decode(ids), guesses, ids)


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
        logits = trained.model(inputs, blanks.nonzero().flatten(), **padding)
        logits = logits[:, : vocabulary.n_ordinary]
        logits[:, excluded] = -torch.inf
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
