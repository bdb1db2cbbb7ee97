"""The exact floor: the Bayes-optimal loss on text of a known automaton, which no model can beat on
average.

The best prediction of a masked character is its posterior given everything visible in the window.
The forward-backward algorithm (Rabiner 1989) computes it, in float64. The first state has the
stationary distribution, because the window's offset in the text is unknown.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from data.play.automaton import Automaton

NONE = "none"  # the value of a distinction that a state does not have
# for posteriors: 0.1 GB for windows of 256 characters and 7,000 states
WINDOWS_AT_ONCE = 8
TEXTS_AT_ONCE = 32  # for probabilities of texts


def channel(n_chars: int, misprint_prob: float = 0.0) -> Tensor:
    """P(shown | true character), `[n_chars + 2, n_chars]`, up to the probability of masking.

    Row `n_chars` is `[MASK]`, which hides any character. Row `n_chars + 1` stands for characters
    that the automaton does not have; they cannot be shown, unless a visible character is a misprint
    with `misprint_prob`.
    """
    identity = torch.eye(n_chars, dtype=torch.float64)
    visible = (1 - misprint_prob) * identity + misprint_prob / n_chars
    hidden = torch.ones(1, n_chars, dtype=torch.float64)
    return torch.cat([visible, hidden, misprint_prob * hidden])


class Floor:
    """Posteriors of masked characters, and probabilities of texts, under an automaton.

    Ids of characters are indices into its sorted alphabet. In texts that are `shown`, `n_chars` is
    `[MASK]`, and `n_chars + 1` stands for all characters that the automaton does not have.
    """

    def __init__(self, automaton: Automaton):
        automaton = automaton.merged()  # the same distribution, several times faster
        id_of = {character: i for i, character in enumerate(automaton.alphabet)}
        self.n_chars = len(id_of)
        self.char_of_state = torch.tensor([id_of[c] for c in automaton.characters])
        self.transitions = automaton.transitions()
        self.transposed = automaton.transitions(transposed=True)
        self.stationary = automaton.stationary()
        self.descriptions = automaton.descriptions

    def losses(self, windows: Tensor, masked: Tensor) -> Tensor:
        """-log P(true character | all visible characters) in nats of masked ones, `[n_windows,
        seq_len]`; 0 elsewhere.

        `windows` are the true ids, and `masked` is bool, both `[n_windows, seq_len]`. Raises as
        `posteriors`.
        """
        losses = torch.zeros(windows.shape, dtype=torch.float64)
        posteriors = self.posteriors(windows.masked_fill(masked, self.n_chars), masked)
        losses[masked] = -posteriors.gather(1, windows[masked][:, None])[:, 0].log()
        return losses

    def posteriors(
        self, shown: Tensor, wanted: Tensor, misprint_prob: float = 0.0
    ) -> Tensor:
        """P(character | everything shown) at the wanted positions, `[n_wanted, n_chars]` (float64),
        in the order of `wanted.nonzero()`. `shown` are ids and `wanted` is bool, both `[n_windows,
        seq_len]`. Raises ValueError if the automaton cannot have written what is shown."""
        return self._sums(
            shown, wanted, self.char_of_state, self.n_chars, misprint_prob
        )

    def values(self, distinction: str) -> list[str]:
        """The values of one of the grammar's distinctions, such as "number", sorted; "none" for
        states without it.

        Raises ValueError if the grammar does not have the distinction.
        """
        values = set(self._of_states(distinction))
        if values <= {NONE}:
            raise ValueError(
                f"the automaton's states have no distinction {distinction!r}"
            )

        return sorted(values)

    def _of_states(self, distinction: str) -> list[str]:
        """The value of a distinction in each state."""
        return [description.get(distinction, NONE) for description in self.descriptions]

    def beliefs(self, shown: Tensor, wanted: Tensor, distinction: str) -> Tensor:
        """P(value of a distinction | all visible characters) at the wanted positions of a text with
        holes, `[n_wanted, n_values]`, in the order of `values(distinction)`; otherwise as
        `posteriors`."""
        values = self.values(distinction)
        group = torch.tensor(
            [values.index(value) for value in self._of_states(distinction)]
        )
        return self._sums(shown, wanted, group, len(values))

    def log_probability(self, shown: Tensor) -> Tensor:
        """log P(all visible characters) in nats of texts `[n, seq_len]`: `[n]`, -inf for impossible
        ones."""
        given = channel(self.n_chars)
        sums = []
        for some in shown.split(TEXTS_AT_ONCE):
            logs = torch.stack(
                [total.log() for _, total in self._forward(some, given)], 1
            )
            sums.append(logs.masked_fill(some == self.n_chars, 0.0).sum(1))

        return torch.cat(sums)

    def _sums(
        self,
        shown: Tensor,
        wanted: Tensor,
        group: Tensor,
        n_groups: int,
        misprint_prob: float = 0.0,
    ) -> Tensor:
        """P(group of the state | everything shown) at the wanted positions; `group` is
        `[n_states]`."""
        given = channel(self.n_chars, misprint_prob)
        joint = []
        parts = zip(
            shown.split(WINDOWS_AT_ONCE), wanted.split(WINDOWS_AT_ONCE), strict=True
        )
        for some, here in parts:
            sums = torch.zeros(some.shape[1], n_groups, len(some), dtype=torch.float64)
            for t, states in self._posteriors(some, here, given):
                sums[t].index_add_(0, group, states)
            joint.append(sums.permute(2, 0, 1)[here])

        probabilities = torch.cat(joint)
        return probabilities / probabilities.sum(1, keepdim=True)

    def _posteriors(
        self, shown: Tensor, wanted: Tensor, given: Tensor
    ) -> Iterator[tuple[int, Tensor]]:
        """Positions t that any window wants, the last one first, and P(state at t | everything
        shown), up to a factor, `[n_states, n_windows]`."""
        kept = {}
        for t, (state, total) in enumerate(self._forward(shown, given)):
            if not total.all():
                raise ValueError(
                    f"the grammar cannot generate this text (character {t + 1} is impossible)"
                )
            if wanted[:, t].any():
                kept[t] = state

        # P(shown after t | state at t)
        future = torch.ones(len(self.char_of_state), len(shown), dtype=torch.float64)
        for t in reversed(range(min(kept, default=shown.shape[1]), shown.shape[1])):
            if t in kept:
                yield t, kept.pop(t).mul_(future)
            future = self.transitions @ future.mul_(
                self._likelihood(shown[:, t], given)
            )
            future /= future.sum(0)

    def _forward(self, shown: Tensor, given: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each position, P(state there | shown up to there) and P(shown there | shown before).

        They are `[n_states, n_windows]` and `[n_windows]`. A window that the automaton cannot have
        written has zeros from its first impossible position on.
        """
        state = self.stationary[:, None].repeat(1, len(shown))
        for t in range(shown.shape[1]):
            if t:
                state = self.transposed @ state
            state *= self._likelihood(shown[:, t], given)
            total = state.sum(0)
            state /= total + (total == 0)
            yield state, total

    def _likelihood(self, shown: Tensor, given: Tensor) -> Tensor:
        """P(shown | state), `[n_states, n_windows]`."""
        return given[shown].T.contiguous().index_select(0, self.char_of_state)
