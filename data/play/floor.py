"""The exact floor: the Bayes-optimal loss on text of a known automaton, which no model can beat on average.

A model sees a window of the text with some characters masked or replaced. Its best prediction of such a character is
the posterior given everything visible in the window. The forward-backward algorithm (Baum et al. 1970; Rabiner 1989)
computes it, in float64 and normalized at every step. The first state has the stationary distribution, because the
window's offset in the text is unknown.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from data.play.automaton import Automaton

WINDOWS_AT_ONCE = 8  # 0.3 GB for windows of 256 characters and 19,000 states


@dataclass(frozen=True)
class Channel:
    """P(shown | true): how likely each character is shown for each true one, as matrices `[n_chars + 1, n_chars]`.

    The last row stands for `[MASK]`.
    """

    scored: Tensor  # at the scored positions, which were selected
    elsewhere: Tensor


def masked_channel(n_chars: int) -> Channel:
    """The validation protocol's channel: scored positions show `[MASK]`, all others their character."""
    return corrupted_channel(n_chars, masking_prob=0.0, randomize_prob=0.0, no_change_prob=0.0)


def corrupted_channel(
    n_chars: int, masking_prob: float, randomize_prob: float = 0.1, no_change_prob: float = 0.1
) -> Channel:
    """BERT's channel, with each character selected independently with `masking_prob`.

    A selected character is replaced by `[MASK]`, by a random character (uniform), or kept. Scored positions are known
    to be selected; others are selected with probability `masking_prob`.
    """
    identity = torch.eye(n_chars, dtype=torch.float64)
    selected = torch.empty(n_chars + 1, n_chars, dtype=torch.float64)
    selected[:n_chars] = no_change_prob * identity + randomize_prob / n_chars
    selected[n_chars] = 1 - randomize_prob - no_change_prob
    elsewhere = masking_prob * selected
    elsewhere[:n_chars] += (1 - masking_prob) * identity
    return Channel(selected, elsewhere)


class Floor:
    """Posteriors of masked characters under an automaton. Character ids are indices into its sorted alphabet."""

    def __init__(self, automaton: Automaton):
        id_of = {character: i for i, character in enumerate(automaton.alphabet)}
        self.n_chars = len(id_of)
        self.char_of_state = torch.tensor([id_of[c] for c in automaton.characters])
        self.transitions = automaton.transitions()
        self.transposed = automaton.transitions(transposed=True)
        self.stationary = automaton.stationary()

    def losses(self, windows: Tensor, shown: Tensor, scored: Tensor, channel: Channel) -> Tensor:
        """-log P(true character | everything shown) in nats, `[n_windows, seq_len]`; 0 where not scored.

        `windows` are the true ids, `shown` the ids that a model sees (`n_chars` stands for `[MASK]`), `scored` (bool)
        marks the positions to predict; all are `[n_windows, seq_len]`. Raises ValueError if the automaton cannot have
        written what is shown.
        """
        n = WINDOWS_AT_ONCE
        batches = zip(windows.split(n), shown.split(n), scored.split(n), strict=True)
        return torch.cat([self._batch(*batch, channel) for batch in batches])

    def _batch(self, windows: Tensor, shown: Tensor, scored: Tensor, channel: Channel) -> Tensor:
        n_windows, seq_len = windows.shape
        forward: dict[int, Tensor] = {}  # P(state at t | shown up to t), [n_states, n_windows], if t is scored
        state = self.stationary[:, None].repeat(1, n_windows)
        for t in range(seq_len):
            if t:
                state = self.transposed @ state
            state *= self._likelihood(shown[:, t], scored[:, t], channel)
            total = state.sum(0)
            if not total.all():
                raise ValueError(f"the automaton cannot have written what is shown (at position {t})")
            state /= total
            if scored[:, t].any():
                forward[t] = state

        losses = torch.zeros(n_windows, seq_len, dtype=torch.float64)
        future = torch.ones_like(state)  # P(shown after t | state at t), up to a factor
        for t in reversed(range(seq_len)):
            if t in forward:
                posterior = torch.zeros(self.n_chars, n_windows, dtype=torch.float64)
                posterior.index_add_(0, self.char_of_state, forward.pop(t).mul_(future))
                truth = posterior.gather(0, windows[None, :, t])[0]
                losses[:, t] = torch.where(scored[:, t], (posterior.sum(0) / truth).log(), 0.0)
            future = self.transitions @ future.mul_(self._likelihood(shown[:, t], scored[:, t], channel))
            future /= future.sum(0)
        return losses

    def _likelihood(self, shown: Tensor, scored: Tensor, channel: Channel) -> Tensor:
        """P(shown | state), `[n_states, n_windows]`."""
        by_char = torch.where(scored[:, None], channel.scored[shown], channel.elsewhere[shown])
        return by_char.T[self.char_of_state]
