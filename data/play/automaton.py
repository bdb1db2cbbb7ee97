"""A stochastic finite-state automaton over characters: a hidden Markov model that writes text.

Every state writes one character, so the law of the text is that of the chain of states.
"""

import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Automaton:
    """State s writes `characters[s]` and goes on to each state t of `successors[s]` with its probability."""

    characters: str
    successors: tuple[Mapping[int, float], ...]

    @property
    def n_states(self) -> int:
        return len(self.characters)

    @property
    def alphabet(self) -> str:
        """The characters that can be written, sorted: as a Vocabulary of the text has them."""
        return "".join(sorted(set(self.characters)))

    def transitions(self, transposed: bool = False) -> torch.Tensor:
        """The transition matrix `[n_states, n_states]` as sparse CSR in float64; its rows sum to 1."""
        edges = [(s, t, p) for s, following in enumerate(self.successors) for t, p in following.items()]
        sources, targets, probs = zip(*edges, strict=True)
        indices = torch.tensor([targets, sources] if transposed else [sources, targets])
        size = (self.n_states, self.n_states)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch calls CSR a beta feature; a user can do nothing about it
            return torch.sparse_coo_tensor(indices, torch.tensor(probs, dtype=torch.float64), size).to_sparse_csr()

    def stationary(self, tolerance: float = 1e-12, max_steps: int = 200_000) -> torch.Tensor:
        """How often each state is visited in the long run, `[n_states]`, by repeated multiplication.

        Raises ArithmeticError where the chain does not settle: it is periodic, or falls apart.
        """
        push = self.transitions(transposed=True)
        visits = torch.full((self.n_states, 1), 1 / self.n_states, dtype=torch.float64)
        for step in range(max_steps):
            after = push @ visits
            if step % 100 == 0 and (after - visits).abs().sum() < tolerance:
                return (after / after.sum()).flatten()
            visits = after
        raise ArithmeticError("the automaton's chain does not settle")

    def write(self, length: int, seed: int) -> str:
        """A text of `length` characters that begins in state 0.

        Python decides once a choice, not once a character: the run of characters up to the next choice is known.
        """
        uniform = np.random.Generator(np.random.PCG64(seed)).random
        draws: list[float] = []
        runs: dict[int, tuple[str, list[float], list[int]]] = {}
        pieces, written, state = [], 0, 0
        while written < length:
            if state not in runs:
                runs[state] = self._run(state)
            text, cumulative, successors = runs[state]
            pieces.append(text)
            written += len(text)
            if not draws:
                draws = uniform(100_000).tolist()
            state = successors[bisect_right(cumulative, draws.pop())]
        return "".join(pieces)[:length]

    def _run(self, state: int) -> tuple[str, list[float], list[int]]:
        """What is written from `state` on without a choice, and the choice at its end: the cumulative
        probabilities of all successors but the last, and the successors."""
        text = self.characters[state]
        while len(self.successors[state]) == 1:
            (state,) = self.successors[state]
            text += self.characters[state]
        following = self.successors[state]
        return text, np.cumsum(list(following.values()))[:-1].tolist(), list(following)


class Builder:
    """Builds an automaton from words between joints.

    A joint is a place in the grammar that writes nothing; words lead from joint to joint. `automaton` removes the
    joints, so that only states that write a character are left.
    """

    def __init__(self) -> None:
        self._characters: list[str | None] = []  # None: a joint
        self._edges: list[dict[int, float]] = []

    def joint(self) -> int:
        """A new place that writes nothing."""
        return self._node(None)

    def words(self, start: int, weights: Mapping[str, float], end: int) -> None:
        """One of several words, each with its weight, between two joints; common beginnings are shared.

        Calls add up: weights of later calls from the same joint count in the same choice. An empty word is a
        way past.
        """
        by_first: dict[str, dict[str, float]] = defaultdict(dict)
        for word, weight in weights.items():
            if word:
                by_first[word[0]][word[1:]] = weight
            else:
                self._edges[start][end] = self._edges[start].get(end, 0.0) + weight
        for character, rests in by_first.items():
            node = self._node(character)
            self._edges[start][node] = sum(rests.values())
            self.words(node, rests, end)

    def word(self, start: int, text: str, end: int, weight: float = 1.0) -> None:
        """One word between two joints."""
        self.words(start, {text: weight}, end)

    def automaton(self, start: int) -> Automaton:
        """The automaton that begins behind the joint `start`. Joints must not follow each other in a circle."""
        closed: dict[int, dict[int, float]] = {}

        def following(node: int) -> dict[int, float]:
            if node not in closed:
                total = sum(self._edges[node].values())
                result: dict[int, float] = defaultdict(float)
                for target, weight in self._edges[node].items():
                    if self._characters[target] is not None:
                        result[target] += weight / total
                        continue
                    for beyond, probability in following(target).items():
                        result[beyond] += weight / total * probability
                closed[node] = dict(result)
            return closed[node]

        order = [next(iter(following(start)))]  # breadth first from the start: what cannot be reached is left out
        number = {order[0]: 0}
        for node in order:
            for target in following(node):
                if target not in number:
                    number[target] = len(order)
                    order.append(target)
        successors = tuple({number[t]: p for t, p in following(node).items()} for node in order)
        return Automaton("".join(self._characters[node] or "" for node in order), successors)

    def _node(self, character: str | None) -> int:
        self._characters.append(character)
        self._edges.append({})
        return len(self._edges) - 1
