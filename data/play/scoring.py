"""The exact probability of a text under an automaton, as a window of an endless text, by the forward algorithm."""

from dataclasses import dataclass

import torch
from torch import Tensor

from data.play.floor import Floor, hiding_channel

TEXTS_AT_ONCE = 32


@dataclass(frozen=True)
class Scores:
    """The scores of texts `[n, seq_len]`."""

    losses: Tensor  # [n, seq_len], as from `conditional_losses`

    @property
    def first_impossible(self) -> Tensor:
        """The offset of the first character that the automaton cannot write there, `[n]`; seq_len if there is none."""
        return self.losses.isfinite().sum(1)

    @property
    def is_possible(self) -> Tensor:
        """Whether the automaton can write the text, bool `[n]`."""
        return self.losses.isfinite().all(1)

    @property
    def nats_per_character(self) -> Tensor:
        """-log P(text) / seq_len, `[n]`; infinite for an impossible text."""
        return torch.where(self.is_possible, self.losses.mean(1), torch.inf)


def conditional_losses(floor: Floor, ids: Tensor) -> Tensor:
    """-log P(x_t | x_<t) in nats of each character of texts `[n, seq_len]`, float64 of the same shape.

    It is infinite at the first character that the automaton cannot write there, and nan after it. Ids are those of the
    floor; `floor.n_chars + 1` stands for all other characters, which are impossible.
    """
    losses = -_log_conditionals(floor, ids)
    return losses.masked_fill(losses.isinf().cumsum(1) > losses.isinf(), torch.nan)


def score(floor: Floor, ids: Tensor) -> Scores:
    """Score texts `[n, seq_len]` of the floor's ids."""
    return Scores(conditional_losses(floor, ids))


def log_probability(floor: Floor, shown: Tensor) -> Tensor:
    """log P(all visible characters) in nats of texts with holes `[n, seq_len]`: `[n]`, -inf for impossible ones.

    Ids are those of the floor; `floor.n_chars` is `[MASK]`, which any character may stand behind.
    """
    return _log_conditionals(floor, shown).sum(1)


def _log_conditionals(floor: Floor, shown: Tensor) -> Tensor:
    """log P(x_t | all visible x before t), `[n, seq_len]`; 0 at `[MASK]`."""
    channel = hiding_channel(floor.n_chars)
    conditionals = []
    for some in shown.split(TEXTS_AT_ONCE):
        totals = [total for _, total in floor.forward(some, torch.zeros_like(some, dtype=torch.bool), channel)]
        conditionals.append(torch.stack(totals, dim=1).log())
    return torch.cat(conditionals).masked_fill(shown == floor.n_chars, 0.0)
