"""The exact floor: the Bayes-optimal loss on text of a known automaton, which no model can beat on average.

The best prediction of a masked or replaced character is its posterior given everything visible in the window. The
forward-backward algorithm (Rabiner 1989) computes it, in float64. The first state has the stationary distribution,
because the window's offset in the text is unknown.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from data.play.automaton import Automaton

NONE = "none"  # the value of a distinction that a state does not have
WINDOWS_AT_ONCE = 8  # 0.1 GB for windows of 256 characters and 7,000 states


@dataclass(frozen=True)
class Channel:
    """P(shown | true) as matrices `[n_shown, n_chars]`, whose row `n_chars` stands for `[MASK]`."""

    scored: Tensor  # at the scored positions, which were selected
    elsewhere: Tensor


def masked_channel(n_chars: int) -> Channel:
    """The validation protocol's channel: scored positions show `[MASK]`, all others their character."""
    return corrupted_channel(n_chars, masking_prob=0.0, randomize_prob=0.0, no_change_prob=0.0)


def corrupted_channel(
    n_chars: int, masking_prob: float, randomize_prob: float = 0.1, no_change_prob: float = 0.1
) -> Channel:
    """BERT's channel: a selected character is replaced by `[MASK]`, by a random character (uniform), or kept. Scored
    positions are selected, all others with the probability `masking_prob`."""
    identity = torch.eye(n_chars, dtype=torch.float64)
    selected = torch.empty(n_chars + 1, n_chars, dtype=torch.float64)
    selected[:n_chars] = no_change_prob * identity + randomize_prob / n_chars
    selected[n_chars] = 1 - randomize_prob - no_change_prob
    elsewhere = masking_prob * selected
    elsewhere[:n_chars] += (1 - masking_prob) * identity
    return Channel(selected, elsewhere)


def hiding_channel(n_chars: int, misprint_prob: float = 0.0) -> Channel:
    """The channel of a text with holes: `[MASK]` hides any character, and all others are visible.

    Row `n_chars + 1` stands for characters that the automaton does not have; they cannot be shown, unless a visible
    character is a misprint with `misprint_prob`.
    """
    visible = (1 - misprint_prob) * torch.eye(n_chars, dtype=torch.float64) + misprint_prob / n_chars
    hidden = torch.ones(1, n_chars, dtype=torch.float64)  # without the probability of masking, equal for all characters
    matrix = torch.cat([visible, hidden, misprint_prob * hidden])
    return Channel(matrix, matrix)


class Floor:
    """Posteriors of masked characters under an automaton. Character ids are indices into its sorted alphabet."""

    def __init__(self, automaton: Automaton):
        automaton = automaton.merged()  # the same distribution, several times faster
        id_of = {character: i for i, character in enumerate(automaton.alphabet)}
        self.n_chars = len(id_of)
        self.char_of_state = torch.tensor([id_of[c] for c in automaton.characters])
        self.transitions = automaton.transitions()
        self.transposed = automaton.transitions(transposed=True)
        self.stationary = automaton.stationary()
        self.descriptions = automaton.descriptions

    def losses(self, windows: Tensor, shown: Tensor, scored: Tensor, channel: Channel) -> Tensor:
        """-log P(true character | everything shown) in nats, `[n_windows, seq_len]`; 0 where not scored.

        `windows` are the true ids, `shown` the ids that a model sees (`n_chars` stands for `[MASK]`), `scored` (bool)
        marks the positions to predict; all are `[n_windows, seq_len]`. Raises ValueError if the automaton cannot have
        written what is shown.
        """
        losses = torch.zeros(windows.shape, dtype=torch.float64)
        posteriors = self.posteriors(shown, scored, channel)
        losses[scored] = -posteriors.gather(1, windows[scored][:, None])[:, 0].log()
        return losses

    def posteriors(self, shown: Tensor, wanted: Tensor, channel: Channel) -> Tensor:
        """P(character | everything shown) at the wanted positions, `[n_wanted, n_chars]` (float64), in the order of
        `wanted.nonzero()`. `shown` are ids and `wanted` is bool, both `[n_windows, seq_len]`. Raises as `losses`."""
        return self._sums(shown, wanted, channel, self.char_of_state, self.n_chars)

    def values(self, distinction: str) -> list[str]:
        """The values of one of the grammar's distinctions, such as "number", sorted; "none" for states without it.

        Raises ValueError if the grammar does not have the distinction.
        """
        found = {description.get(distinction, NONE) for description in self.descriptions}
        if found <= {NONE}:
            raise ValueError(f"the automaton's states have no distinction {distinction!r}")
        return sorted(found)

    def beliefs(self, shown: Tensor, wanted: Tensor, distinction: str) -> Tensor:
        """P(value of a distinction | all visible characters) at the wanted positions of a text with holes, `[n_wanted,
        n_values]`, in the order of `values(distinction)`; otherwise as `posteriors`."""
        number = {value: i for i, value in enumerate(self.values(distinction))}
        group = torch.tensor([number[description.get(distinction, NONE)] for description in self.descriptions])
        return self._sums(shown, wanted, hiding_channel(self.n_chars), group, len(number))

    def _sums(self, shown: Tensor, wanted: Tensor, channel: Channel, group: Tensor, n_groups: int) -> Tensor:
        """P(group of the state | everything shown) at the wanted positions; `group` is `[n_states]`."""
        found = []
        for some, here in zip(shown.split(WINDOWS_AT_ONCE), wanted.split(WINDOWS_AT_ONCE), strict=True):
            sums = torch.zeros(some.shape[1], n_groups, len(some), dtype=torch.float64)
            for t, states in self._posteriors(some, here, channel):
                sums[t].index_add_(0, group, states)
            found.append(sums.permute(2, 0, 1)[here])
        joint = torch.cat(found)
        return joint / joint.sum(1, keepdim=True)

    def _posteriors(self, shown: Tensor, wanted: Tensor, channel: Channel) -> Iterator[tuple[int, Tensor]]:
        """Positions t that any window wants, the last one first, and P(state at t | everything shown), up to a factor,
        `[n_states, n_windows]`."""
        kept: dict[int, Tensor] = {}
        for t, (state, total) in enumerate(self.forward(shown, wanted, channel)):
            if not total.all():
                raise ValueError(f"the automaton cannot have written what is shown (at position {t})")
            if wanted[:, t].any():
                kept[t] = state
        future = torch.ones(len(self.char_of_state), len(shown), dtype=torch.float64)  # P(shown after t | state at t)
        for t in reversed(range(min(kept, default=shown.shape[1]), shown.shape[1])):
            if t in kept:
                yield t, kept.pop(t).mul_(future)
            future = self.transitions @ future.mul_(self._likelihood(shown[:, t], wanted[:, t], channel))
            future /= future.sum(0)

    def forward(self, shown: Tensor, wanted: Tensor, channel: Channel) -> Iterator[tuple[Tensor, Tensor]]:
        """For each position, P(state there | shown up to there) and P(shown there | shown before).

        They are `[n_states, n_windows]` and `[n_windows]`. A window that the automaton cannot have written has zeros
        from its first impossible position on.
        """
        state = self.stationary[:, None].repeat(1, len(shown))
        for t in range(shown.shape[1]):
            if t:
                state = self.transposed @ state
            state *= self._likelihood(shown[:, t], wanted[:, t], channel)
            total = state.sum(0)
            state /= total + (total == 0)
            yield state, total

    def _likelihood(self, shown: Tensor, wanted: Tensor, channel: Channel) -> Tensor:
        """P(shown | state), `[n_states, n_windows]`."""
        by_char = torch.where(wanted[:, None], channel.scored[shown], channel.elsewhere[shown])
        return by_char.T.contiguous().index_select(0, self.char_of_state)
