"""Pairs of text, [CLS] A [SEP] B [SEP], for a second objective: does B follow A (nsp), or what is
their order (sop)?

Every pair has the same length, without padding. A and B share it equally; A gets the odd character.
"""

import re
from bisect import bisect_left

import torch
from torch.utils._pytree import tree_map_only

from data.protocol import SEED, WINDOW_LEN
from data.text.sources import CorpusError
from data.text.stored import StoredIds
from data.vocabulary import CLS, SEP, Vocabulary
from data.windows import WindowBatch, Windows

N_SPECIAL = 3  # special tokens per pair: [CLS] and two [SEP]s
VALIDATION_PAIRS = 1_024


class PairWindows(Windows):
    """Draws pairs of text. An independent coin per pair decides its label, so half of the labels
    are 1.

    `nsp` is next-sentence prediction (Devlin et al. 2018). A ends at a border between speeches. B
    begins at the same border (label 1) or at that of another speech anywhere in the text (label 0).
    If the other speech reads the same as the true one, the label is 1 as well; this happens to a
    few percent of the pairs shorter than 24 characters.

    `sop` is sentence-order prediction (Lan et al. 2020, ALBERT). A and B are neighbors in the text,
    in their order (label 1) or exchanged (label 0). They meet at any offset: at borders between
    speeches, a speaker's name at the beginning of A or B would reveal the order.
    """

    def __init__(
        self,
        objective: str,
        ids: torch.Tensor | StoredIds,
        text: str,
        vocabulary: Vocabulary,
        seed: int,
        longest: int,
    ):
        """`ids` `[n_tokens]` are the tokens of `text`. Raises CorpusError if nsp has too few
        speeches for pairs of `longest`."""
        super().__init__(ids, seed=seed)
        self.objective = objective
        self.cls_token = vocabulary.id_of(CLS)
        self.sep_token = vocabulary.id_of(SEP)
        if objective == "sop":
            return  # it needs no borders
        # on the host, to count without a synchronization
        self.borders = speech_borders(ids, text, vocabulary)
        self.borders_on_device = torch.tensor(self.borders, device=ids.device)
        first, last = self._usable_borders(longest)
        if last - first < 2:
            raise CorpusError(
                f"next-sentence prediction: a text of {len(ids):,} characters has too few speeches for pairs of"
                f" {longest}: separate its parts by empty lines, or take a longer text"
            )

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch:
        """A batch of pairs, `[batch_size, seq_len]`. A special token has the offset of a character
        next to it.

        The extras are `segments` `[batch_size, seq_len]`, 0 for [CLS] A [SEP] and 1 for B [SEP],
        and `pair_labels` `[batch_size]`, bool: does B follow A (nsp), or are A and B in their order
        (sop)?
        """
        n_first, n_second = _lengths(seq_len)
        draw = self._next_sentence if self.objective == "nsp" else self._sentence_order
        first, second, labels = draw(batch_size, n_first, n_second)
        offsets = torch.cat(
            [first[:, :1], first, first[:, -1:], second, second[:, -1:]], dim=1
        )
        tokens = self.ids[offsets]
        tokens[:, 0] = self.cls_token
        tokens[:, n_first + 1] = self.sep_token
        tokens[:, -1] = self.sep_token
        segments = torch.zeros_like(tokens)
        segments[:, n_first + 2 :] = 1
        return WindowBatch(
            tokens, offsets, extras={"segments": segments, "pair_labels": labels}
        )

    def _next_sentence(
        self, batch_size: int, n_first: int, n_second: int
    ) -> tuple[torch.Tensor, ...]:
        lowest, highest = self._usable_borders(n_first + n_second + N_SPECIAL)
        n = highest - lowest
        border = self._integers(n, batch_size)
        # any other border, with equal probability
        elsewhere = (border + 1 + self._integers(n - 1, batch_size)) % n
        follows = self._coins(batch_size)
        meeting = self.borders_on_device[lowest + border]
        begin = self.borders_on_device[lowest + torch.where(follows, border, elsewhere)]
        first = meeting[:, None] + self._range(-n_first, 0)
        truth = meeting[:, None] + self._range(0, n_second)
        second = begin[:, None] + self._range(0, n_second)
        return first, second, (self.ids[second] == self.ids[truth]).all(1)

    def _sentence_order(
        self, batch_size: int, n_first: int, n_second: int
    ) -> tuple[torch.Tensor, ...]:
        in_order = self._coins(batch_size)
        longer = max(n_first, n_second)
        meeting = (longer + self._integers(len(self.ids) - 2 * longer + 1, batch_size))[
            :, None
        ]
        kept = in_order[:, None]
        first = meeting + torch.where(
            kept, self._range(-n_first, 0), self._range(0, n_first)
        )
        second = meeting + torch.where(
            kept, self._range(0, n_second), self._range(-n_second, 0)
        )
        return first, second, in_order

    def _usable_borders(self, seq_len: int) -> tuple[int, int]:
        """The first and one past the last border that have enough text on both sides for pairs of
        `seq_len`."""
        n_first, n_second = _lengths(seq_len)
        first = bisect_left(self.borders, n_first)
        last = bisect_left(self.borders, len(self.ids) - n_second + 1)
        return first, last

    def _range(self, begin: int, end: int) -> torch.Tensor:
        return torch.arange(begin, end, device=self.ids.device)

    def _coins(self, n: int) -> torch.Tensor:
        return torch.rand(n, generator=self.generator, device=self.ids.device) < 0.5


def _lengths(seq_len: int) -> tuple[int, int]:
    """The numbers of characters in A and B."""
    n_second = (seq_len - N_SPECIAL) // 2
    return seq_len - N_SPECIAL - n_second, n_second


def speech_borders(
    ids: torch.Tensor | StoredIds, text: str, vocabulary: Vocabulary
) -> list[int]:
    """The indices in `ids` at which speeches begin, which is after each empty line of `text`;
    ascending."""
    if isinstance(ids, StoredIds):  # `text` may be a sample
        original = text if vocabulary.is_characters else None
        text, offsets = vocabulary.text_of(ids.ids, original)
    else:
        text, offsets = vocabulary.text_of(ids, text)

    borders = [match.end() for match in re.finditer(r"\n\s*\n", text)]
    if offsets is not None:
        characters = torch.tensor(borders, dtype=torch.int64)
        borders = torch.searchsorted(offsets, characters).unique().tolist()
    return [border for border in borders if border < len(ids)]


def held_out_pairs(
    objective: str,
    ids: torch.Tensor | StoredIds,
    text: str,
    vocabulary: Vocabulary,
    device: torch.device,
) -> WindowBatch:
    """Pairs of the validation text on `device`, the same for every run."""
    batch = PairWindows(objective, ids, text, vocabulary, SEED, WINDOW_LEN).draw(
        VALIDATION_PAIRS, WINDOW_LEN
    )
    return tree_map_only(torch.Tensor, lambda part: part.to(device), batch)
