"""Pairs of text for a second objective: does the one follow the other, or in which order do they stand?

    [CLS] A [SEP] B [SEP]

at a fixed length, without padding: A and B share it as evenly as can be.
"""

import re
from typing import Any, Literal

import torch

from data.corpus import CorpusError
from data.generators import go_on_from
from data.windows import Pairs, WindowBatch

CLS, SEP = "[CLS]", "[SEP]"
N_SPECIAL = 3  # of every pair: [CLS] and two [SEP]s
SHORTEST = N_SPECIAL + 2
Objective = Literal["nsp", "sop"]


def speech_borders(text: str) -> torch.Tensor:
    """Where speeches begin: after each empty line, `[n_borders]` offsets in the text, rising."""
    offsets = [match.end() for match in re.finditer(r"\n\s*\n", text)]
    return torch.tensor([place for place in offsets if place < len(text)], dtype=torch.int64)


class PairWindows:
    """Draws pairs of text; half of them have the label 1, drawn anew for each pair.

    `nsp` is next-sentence prediction (Devlin et al. 2018). A ends and B begins at a speech's border: the same border
    (label 1), or B at that of another speech anywhere in the text (label 0). Where that one happens to read the same
    as the true one, the label is 1 too: in pairs of less than 24 characters, of which several speeches begin alike,
    that is some in a hundred.

    `sop` is sentence order (Lan et al. 2020, ALBERT). A and B are neighbours in the text, as they stand (label 1) or
    exchanged (label 0). They meet anywhere: at a speech's border the order would show in which of the two begins with a
    speaker's name.
    """

    def __init__(
        self,
        ids: torch.Tensor,
        borders: torch.Tensor,
        *,
        objective: Objective,
        cls_token: int,
        sep_token: int,
        seed: int,
        longest: int,
    ):
        """`ids` `[n_chars]`, with speeches that begin at `borders` (only `nsp` needs them); `longest` is the length
        of the longest pairs that will be drawn. Raises CorpusError where the text has too few of them."""
        self.ids = ids
        self.objective = objective
        self.cls_token = cls_token
        self.sep_token = sep_token
        self.borders = borders.cpu()  # the host's copy decides shapes: no waiting for the device
        self.borders_on_device = borders.to(ids.device)
        self.generator = torch.Generator(device=ids.device).manual_seed(seed)
        first, last = self._usable_borders(longest)
        if objective == "nsp" and last - first < 2:
            raise CorpusError(
                f"objective.nsp: a text of {len(ids):,} characters with too few speeches for pairs of {longest}:"
                " it needs parts with an empty line between them"
            )

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch:
        """A batch of pairs, `[batch_size, seq_len]`; special tokens have the place of a character beside them."""
        n_first, n_second = _lengths(seq_len)
        if self.objective == "nsp":
            first, second, labels = self._next_sentence(batch_size, n_first, n_second)
        else:
            first, second, labels = self._sentence_order(batch_size, n_first, n_second)
        offsets = torch.cat([first[:, :1], first, first[:, -1:], second, second[:, -1:]], dim=1)
        tokens = self.ids[offsets]
        tokens[:, 0] = self.cls_token
        tokens[:, n_first + 1] = self.sep_token
        tokens[:, -1] = self.sep_token
        segments = torch.zeros_like(tokens)
        segments[:, n_first + 2 :] = 1
        return WindowBatch(tokens, offsets, Pairs(segments, labels))

    def _next_sentence(self, batch_size: int, n_first: int, n_second: int) -> tuple[torch.Tensor, ...]:
        lowest, highest = self._usable_borders(n_first + n_second + N_SPECIAL)
        n = highest - lowest
        border = self._integers(n, batch_size)
        elsewhere = (border + 1 + self._integers(n - 1, batch_size)) % n  # any other one, all alike
        follows = self._coins(batch_size)
        meeting = self.borders_on_device[lowest + border]
        begin = self.borders_on_device[lowest + torch.where(follows, border, elsewhere)]
        first = meeting[:, None] + self._offsets(-n_first, 0)
        truth = meeting[:, None] + self._offsets(0, n_second)
        second = begin[:, None] + self._offsets(0, n_second)
        return first, second, (self.ids[second] == self.ids[truth]).all(1)

    def _sentence_order(self, batch_size: int, n_first: int, n_second: int) -> tuple[torch.Tensor, ...]:
        in_order = self._coins(batch_size)
        longer = max(n_first, n_second)
        meeting = (longer + self._integers(len(self.ids) - 2 * longer + 1, batch_size))[:, None]
        kept = in_order[:, None]
        first = meeting + torch.where(kept, self._offsets(-n_first, 0), self._offsets(0, n_first))
        second = meeting + torch.where(kept, self._offsets(0, n_second), self._offsets(-n_second, 0))
        return first, second, in_order

    def _usable_borders(self, seq_len: int) -> tuple[int, int]:
        """Which borders, from and to, have text enough on both sides for pairs of `seq_len`."""
        n_first, n_second = _lengths(seq_len)
        limits = torch.tensor([n_first, len(self.ids) - n_second + 1])
        first, last = torch.searchsorted(self.borders, limits).tolist()
        return first, last

    def _offsets(self, begin: int, end: int) -> torch.Tensor:
        return torch.arange(begin, end, device=self.ids.device)

    def _integers(self, high: int, n: int) -> torch.Tensor:
        return torch.randint(high, (n,), generator=self.generator, device=self.ids.device)

    def _coins(self, n: int) -> torch.Tensor:
        return torch.rand(n, generator=self.generator, device=self.ids.device) < 0.5

    def state_dict(self) -> dict[str, Any]:
        """All that decides the pairs still to come."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        go_on_from(self.generator, state["generator"])


def _lengths(seq_len: int) -> tuple[int, int]:
    """How many characters of a pair are A's and B's."""
    n_second = (seq_len - N_SPECIAL) // 2
    return seq_len - N_SPECIAL - n_second, n_second
