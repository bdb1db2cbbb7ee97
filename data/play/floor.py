"""The exact floor: the lowest loss that any model can reach on text of a known automaton.

A model sees a window of the text with some characters hidden or changed. The best that it can say of a hidden
character is its posterior given everything that is visible in the window. Forward-backward (Baum et al. 1970;
Rabiner 1989) computes it, with the stationary distribution as the first state's: where in the play the window
stands is not known. In float64, every step normalised.
"""

from dataclasses import dataclass

import torch

from data.play.automaton import Automaton

WINDOWS_AT_ONCE = 16  # of 256 characters, with 16,000 states: half a gigabyte


@dataclass(frozen=True)
class Channel:
    """How a true character becomes the one that is shown: `[n_shown, n_chars]`, P(shown | true).

    What is shown is a character, or in the last row `[MASK]`.
    """

    scored: torch.Tensor  # at the positions that are scored: they were selected
    elsewhere: torch.Tensor


def masked_channel(n_chars: int) -> Channel:
    """The protocol's: scored positions show `[MASK]`, all others their character."""
    hidden = torch.zeros(n_chars + 1, n_chars, dtype=torch.float64)
    hidden[n_chars] = 1
    return Channel(hidden, torch.eye(n_chars + 1, n_chars, dtype=torch.float64))


def corrupted_channel(
    n_chars: int, masking_prob: float, randomize_prob: float = 0.1, no_change_prob: float = 0.1
) -> Channel:
    """BERT's, with characters selected independently: a shown character may have been selected and replaced by a
    random one (uniform), or kept. Scored positions are known to have been selected; at the others it is open."""
    identity = torch.eye(n_chars, dtype=torch.float64)
    selected = torch.empty(n_chars + 1, n_chars, dtype=torch.float64)
    selected[:n_chars] = no_change_prob * identity + randomize_prob / n_chars
    selected[n_chars] = 1 - randomize_prob - no_change_prob
    elsewhere = masking_prob * selected
    elsewhere[:n_chars] += (1 - masking_prob) * identity
    return Channel(selected, elsewhere)


class Floor:
    """Posteriors of hidden characters under an automaton. Character ids are offsets in its sorted alphabet."""

    def __init__(self, automaton: Automaton):
        id_of = {character: i for i, character in enumerate(automaton.alphabet)}
        self.n_chars = len(id_of)
        self.char_of_state = torch.tensor([id_of[c] for c in automaton.characters])
        self.transitions = automaton.transitions()
        self.transposed = automaton.transitions(transposed=True)
        self.stationary = automaton.stationary()

    def losses(
        self, windows: torch.Tensor, shown: torch.Tensor, scored: torch.Tensor, channel: Channel
    ) -> torch.Tensor:
        """-log P(true character | everything shown) in nats, `[n_windows, seq_len]`; 0 where not scored.

        `windows` are the true ids, `shown` what the model sees of them (`n_chars` stands for `[MASK]`), `scored`
        says which positions count; all `[n_windows, seq_len]`. Raises ValueError where what is shown cannot come
        from the automaton.
        """
        n = WINDOWS_AT_ONCE
        batches = zip(windows.split(n), shown.split(n), scored.split(n), strict=True)
        return torch.cat([self._batch(*batch, channel) for batch in batches])

    def _batch(
        self, windows: torch.Tensor, shown: torch.Tensor, scored: torch.Tensor, channel: Channel
    ) -> torch.Tensor:
        n_windows, seq_len = windows.shape
        forward: list[torch.Tensor] = []  # P(state at t | shown up to t), [n_states, n_windows]
        state = self.stationary[:, None].expand(-1, n_windows)
        for t in range(seq_len):
            if t:
                state = self.transposed @ state
            state = state * self._likelihood(shown[:, t], scored[:, t], channel)
            total = state.sum(0)
            if not total.all():
                raise ValueError(f"what is shown cannot have been written by the automaton (at position {t})")
            state = state / total
            forward.append(state)

        losses = torch.zeros(n_windows, seq_len, dtype=torch.float64)
        future = torch.ones_like(state)  # P(shown after t | state at t), up to a factor
        for t in reversed(range(seq_len)):
            if scored[:, t].any():
                posterior = torch.zeros(self.n_chars, n_windows, dtype=torch.float64)
                posterior.index_add_(0, self.char_of_state, forward[t] * future)
                truth = posterior.gather(0, windows[None, :, t])[0]
                losses[:, t] = torch.where(scored[:, t], (posterior.sum(0) / truth).log(), 0.0)
            future = self.transitions @ (future * self._likelihood(shown[:, t], scored[:, t], channel))
            future = future / future.sum(0)
        return losses

    def _likelihood(self, shown: torch.Tensor, scored: torch.Tensor, channel: Channel) -> torch.Tensor:
        """P(what is shown | state), `[n_states, n_windows]`."""
        by_char = torch.where(scored[:, None], channel.scored[shown], channel.elsewhere[shown])
        return by_char.T[self.char_of_state]
