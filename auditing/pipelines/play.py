"""Folio's play: a text written by a known automaton, whose Bayes-optimal masked loss can be
computed exactly.

`play.npz` holds the automaton, a hidden Markov model over characters: the character that each
state writes, and its successors with their probabilities.
"""

import warnings
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from auditing.statistics import Array

FILE = Path(__file__).with_name("play.npz")
N_CHARACTERS = 1_000_000
SEED = 1
WINDOWS_AT_ONCE = 8  # 0.1 GB for windows of 256 characters


class Automaton:
    """State s writes `characters[s]`, then moves to a successor with its probability.

    Ids of characters are indices into the sorted `alphabet`. In texts that are shown, the id
    `n_chars` is `[MASK]`.
    """

    def __init__(self) -> None:
        stored = np.load(FILE)
        self.characters = str(stored["characters"])
        self.alphabet = "".join(sorted(set(self.characters)))
        self.n_chars = len(self.alphabet)
        self.n_states = len(self.characters)
        self.n_successors = stored["n_successors"].astype(int)
        self.successors = stored["successors"].astype(int)
        self.probabilities = stored["probabilities"]
        id_of = {character: id for id, character in enumerate(self.alphabet)}
        self.char_of_state = torch.tensor(
            [id_of[character] for character in self.characters]
        )

    def write(self, length: int, seed: int = SEED) -> Array:
        """The ids of a text of `length` characters that begins in state 0."""
        ends = self.n_successors.cumsum()[:-1]
        successors = [each.tolist() for each in np.split(self.successors, ends)]
        cumulative = [
            each.cumsum()[:-1].tolist() for each in np.split(self.probabilities, ends)
        ]
        draws = np.random.Generator(np.random.PCG64(seed)).random(length).tolist()
        states = []
        state = 0
        for draw in draws:
            states.append(state)
            state = successors[state][bisect_right(cumulative[state], draw)]

        return self.char_of_state.numpy()[states]

    @cached_property
    def transitions(self) -> Tensor:
        """P(next state | state), `[n_states, n_states]` as sparse CSR in float64."""
        return self._sparse(transposed=False)

    @cached_property
    def transposed(self) -> Tensor:
        """The transposed `transitions`, which take a distribution one step forward."""
        return self._sparse(transposed=True)

    @cached_property
    def stationary(self) -> Tensor:
        """The stationary distribution of the states, `[n_states]`."""
        before = torch.zeros(self.n_states, 1, dtype=torch.float64)
        after = torch.full_like(before, 1 / self.n_states)
        while (after - before).abs().sum() > 1e-12:
            before = after
            for _ in range(100):
                after = self.transposed @ after
        return (after / after.sum()).flatten()

    def posteriors(self, shown: Tensor, wanted: Tensor, misprint_prob: float) -> Tensor:
        """P(character | everything shown) at the wanted positions, `[n_wanted, n_chars]`.

        `shown` are ids and `wanted` is bool, both `[n_windows, seq_len]`. A visible character is a
        random one with `misprint_prob`. Forward-backward algorithm (Rabiner 1989), in float64; the
        first state has the stationary distribution, because the window's offset is unknown.
        """
        identity = torch.eye(self.n_chars, dtype=torch.float64)
        visible = (1 - misprint_prob) * identity + misprint_prob / self.n_chars
        hidden = torch.ones(1, self.n_chars, dtype=torch.float64)
        # P(shown | true character), up to a factor
        given = torch.cat([visible, hidden])
        parts = []
        for start in range(0, len(shown), WINDOWS_AT_ONCE):
            some = slice(start, start + WINDOWS_AT_ONCE)
            parts.append(self._joint(shown[some], wanted[some], given))

        joint = torch.cat(parts)
        return joint / joint.sum(1, keepdim=True)

    def _joint(self, shown: Tensor, wanted: Tensor, given: Tensor) -> Tensor:
        """The posteriors of some windows, up to a factor."""
        n_windows, seq_len = shown.shape
        forward = self._forward(shown, wanted, given)
        # P(shown after | state)
        future = torch.ones(self.n_states, n_windows, dtype=torch.float64)
        sums = torch.zeros(seq_len, self.n_chars, n_windows, dtype=torch.float64)

        for t in reversed(range(seq_len)):
            if t in forward:
                sums[t].index_add_(0, self.char_of_state, forward.pop(t) * future)
            future = self.transitions @ (future * self._likelihood(shown[:, t], given))
            future /= future.sum(0)

        return sums.permute(2, 0, 1)[wanted]

    def _forward(
        self, shown: Tensor, wanted: Tensor, given: Tensor
    ) -> dict[int, Tensor]:
        """P(state | shown up to there), `[n_states, n_windows]`, of each position that is wanted in
        any window."""
        kept = {}
        state = self.stationary[:, None].expand(-1, len(shown))

        for t in range(shown.shape[1]):
            if t:
                state = self.transposed @ state
            state = state * self._likelihood(shown[:, t], given)
            state /= state.sum(0)
            if wanted[:, t].any():
                kept[t] = state

        return kept

    def _likelihood(self, shown: Tensor, given: Tensor) -> Tensor:
        """P(shown | state), `[n_states, n_windows]`."""
        return given[shown].T.contiguous().index_select(0, self.char_of_state)

    def _sparse(self, transposed: bool) -> Tensor:
        states = np.arange(self.n_states).repeat(self.n_successors)
        indices = np.stack(
            [self.successors, states] if transposed else [states, self.successors]
        )
        size = (self.n_states, self.n_states)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that CSR is in beta
            coordinates = torch.sparse_coo_tensor(
                torch.from_numpy(indices), torch.from_numpy(self.probabilities), size
            )
            return coordinates.to_sparse_csr()
