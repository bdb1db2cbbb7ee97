"""Scores written texts under the grammar of the play, with measures that are finite for impossible
texts too.

A text is cut before each character that the grammar cannot write after those since the last cut.
These are the fewest cuts after which each piece occurs in some play, since every part of a possible
text is possible.
"""

import math

import torch
from torch import Tensor

from data.play.automaton import Automaton
from data.play.entropy import entropy_rate
from data.play.floor import Floor
from data.vocabulary import Vocabulary
from writing.truth import TruePosterior

OWN_TEXTS = 512  # of the grammar, for comparison
OWN_SEED = 1_000
PER = 1_000  # characters


class Judge:
    """Compares texts of `length` characters with those that the automaton itself writes."""

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary, length: int):
        self.length = length
        self.posterior = TruePosterior(automaton, vocabulary)
        self.entropy_rate = entropy_rate(automaton)  # nats per character
        own = vocabulary.encode(automaton.write(OWN_TEXTS * length, OWN_SEED)).view(
            -1, length
        )
        losses, _ = cut(self.posterior.floor, self.posterior.to_floor(own))
        # [length]; the first are higher, because a text may begin anywhere in a play
        self.own_losses = losses.mean(0)
        # of their mean
        self.own_stderr = (losses.mean(1).std() / OWN_TEXTS**0.5).item()

    def measures(self, ids: Tensor) -> dict[str, float]:
        """Measures of texts `[n, length]`, each with its standard error over texts as
        `<name>_stderr`.

        - `impossible`: the share of texts that the grammar cannot write.
        - `cuts`: cuts per 1,000 characters; 0 if all texts are possible.
        - `nats`: nats per character given those since the last cut, minus those of 512 texts of the
          grammar at the same distance from their beginning, plus the entropy rate. The standard
          error includes that of the 512 texts. The expected value for the grammar's texts is the
          entropy rate. A lower one is not better: such texts have too little variety.
        """
        losses, is_cut = cut(self.posterior.floor, self.posterior.to_floor(ids))
        n, length = ids.shape
        columns = torch.arange(length)
        from_cut = columns - torch.where(is_cut, columns, 0).cummax(1).values
        counted = losses.isfinite()
        excess = torch.where(counted, losses - self.own_losses[from_cut], 0.0).sum(1)
        excess_mean, excess_stderr = ratio(excess, counted.sum(1))
        impossible, impossible_stderr = ratio(is_cut.any(1).double(), torch.ones(n))
        cuts, cuts_stderr = ratio(
            PER * is_cut.sum(1).double(), torch.full((n,), length)
        )

        return {
            "impossible": impossible,
            "impossible_stderr": impossible_stderr,
            "cuts": cuts,
            "cuts_stderr": cuts_stderr,
            "nats": excess_mean + self.entropy_rate,
            "nats_stderr": math.hypot(excess_stderr, self.own_stderr),
        }


def cut(floor: Floor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Losses in nats given the characters since the last cut (float64), and where the cuts are
    (bool).

    Both are `[n, length]`, as are the texts `ids`, in the floor's ids. Each piece begins with the
    stationary distribution. A character that the automaton does not have is cut off; its loss is
    infinite.
    """
    states = floor.stationary[:, None].expand(-1, len(ids))
    losses = []
    is_cut = []
    for t in range(ids.shape[1]):
        writes = floor.char_of_state[:, None] == ids[:, t]
        joint = (floor.transposed @ states if t else states) * writes
        is_cut.append(joint.sum(0) == 0)
        joint = torch.where(is_cut[-1], floor.stationary[:, None] * writes, joint)
        total = joint.sum(0)
        losses.append(-total.log())
        states = torch.where(total == 0, floor.stationary[:, None], joint / total)

    return torch.stack(losses, 1), torch.stack(is_cut, 1)


def ratio(sums: Tensor, counts: Tensor) -> tuple[float, float]:
    """The sum of `sums` `[n]` per `counts` `[n]`, and its standard error over the n texts.

    The error is nan if fewer than two texts count, and so is the value if none does.
    """
    total = float(counts.sum())
    n = int(counts.count_nonzero())
    if not n:
        return math.nan, math.nan
    mean = float(sums.sum()) / total
    if n == 1:
        return mean, math.nan
    variance = float((sums - mean * counts).square().sum()) * n / (n - 1)

    return mean, math.sqrt(variance) / total
