"""A stochastic finite-state automaton over characters: a hidden Markov model that writes text."""

import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import torch


@dataclass(frozen=True)
class Automaton:
    """State s writes `characters[s]`, then moves to state t with probability `successors[s][t]`.

    `descriptions[s]`, if there are any, are the state's distinctions in the grammar, such as
    {"number": "plural"}.
    """

    characters: str
    successors: tuple[Mapping[int, float], ...]
    descriptions: tuple[Mapping[str, str], ...] = ()

    @property
    def alphabet(self) -> str:
        """The characters that can be written, sorted as in a Vocabulary."""
        return "".join(sorted(set(self.characters)))

    def transitions(self, transposed: bool = False) -> torch.Tensor:
        """The transition matrix `[n_states, n_states]` as sparse CSR in float64; its rows sum to 1."""
        counts = torch.tensor(list(map(len, self.successors)))
        sources = torch.arange(len(counts)).repeat_interleave(counts)
        targets = torch.tensor(list(chain.from_iterable(self.successors)))
        probs = list(chain.from_iterable(each.values() for each in self.successors))
        indices = torch.stack([targets, sources] if transposed else [sources, targets])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that CSR is in beta
            return torch.sparse_coo_tensor(
                indices,
                torch.tensor(probs, dtype=torch.float64),
                (len(counts), len(counts)),
            ).to_sparse_csr()

    def stationary(self, max_steps: int = 200_000) -> torch.Tensor:
        """The stationary distribution of the states, `[n_states]`. Raises ArithmeticError if the
        chain is periodic."""
        push = self.transitions(transposed=True)
        n_states = len(self.characters)
        visits = torch.full((n_states, 1), 1 / n_states, dtype=torch.float64)
        for i in range(max_steps):
            after = push @ visits
            if i % 100 == 0 and (after - visits).abs().sum() < 1e-12:
                return (after / after.sum()).flatten()
            visits = after

        raise ArithmeticError("the automaton's chain does not converge")

    def merged(self) -> "Automaton":
        """The automaton with equivalent states merged, which writes the same texts with the same
        probabilities.

        Equivalent states write the same character, have the same description, and move to
        equivalent states with the same probabilities, as the last letters of words that end alike.
        State 0 stays state 0.
        """
        descriptions = self.descriptions or [{}] * len(self.characters)
        number = {}
        group = []
        for state in zip(self.characters, descriptions, self.successors, strict=True):
            character, description, successors = state
            key = (
                character,
                frozenset(description.items()),
                frozenset(successors.items()),
            )
            group.append(number.setdefault(key, len(number)))

        characters, of_groups, moves = zip(*number, strict=True)
        merged_successors = []
        for each in moves:
            after = defaultdict(float)
            for state, probability in sorted(each):
                after[group[state]] += probability
            merged_successors.append(dict(after))

        of_groups = tuple(map(dict, of_groups)) if self.descriptions else ()
        merged = Automaton("".join(characters), tuple(merged_successors), of_groups)
        return merged if len(number) == len(group) else merged.merged()

    def write(self, length: int, seed: int) -> str:
        """A text of `length` characters that begins in state 0."""
        return self.text_of(self.path(length, seed))

    def text_of(self, path: Iterable[int]) -> str:
        """The text that states write."""
        return "".join(map(self.characters.__getitem__, path))

    def path(self, length: int, seed: int) -> list[int]:
        """The states that write a text of `length` characters, of which the first is 0."""
        # of each state: the cumulative probabilities of all successors but the last
        cumulative = [
            np.cumsum(list(each.values()))[:-1].tolist() for each in self.successors
        ]
        successors = list(map(list, self.successors))
        uniform = np.random.Generator(np.random.PCG64(seed)).random
        draws = []
        path = []
        state = 0
        for _ in range(length):
            path.append(state)
            choice = 0
            if cumulative[state]:
                if not draws:
                    draws = uniform(100_000).tolist()
                choice = bisect_right(cumulative[state], draws.pop())
            state = successors[state][choice]

        return path


class Builder:
    """Builds an automaton from texts that lead from joint to joint: points in the grammar that
    write nothing."""

    def __init__(self) -> None:
        self._characters: list[str | None] = []  # of each node; None for a joint
        self._edges: list[dict[int, float]] = []
        self._descriptions: list[dict[str, str]] = []
        self._description: dict[str, str] = {}  # of new nodes

    def describing(self, **description: str) -> "Builder":
        """The same builder, whose new states have this description in addition to its own."""
        other = copy(self)  # with the same lists
        other._description = self._description | description
        return other

    def joint(self, character: str | None = None) -> int:
        """Add a joint, or a state that writes `character`, and return its number."""
        self._characters.append(character)
        self._edges.append({})
        self._descriptions.append(self._description)
        return len(self._edges) - 1

    def joints(self, n: int) -> list[int]:
        """Add `n` joints."""
        return [self.joint() for _ in range(n)]

    def choice(
        self, start: int, weights: Mapping[str, float], end: int, **description: str
    ) -> None:
        """Add a choice between texts with weights, from one joint to another, to those that `start`
        has already. Common beginnings share their states."""
        if description:
            self.describing(**description).choice(start, weights, end)
            return

        by_first = defaultdict(dict)
        for text, weight in weights.items():
            if text:
                by_first[text[0]][text[1:]] = weight
            else:
                self._edges[start][end] = self._edges[start].get(end, 0.0) + weight

        for character, rests in by_first.items():
            node = self.joint(character)
            self._edges[start][node] = sum(rests.values())
            self.choice(node, rests, end)

    def text(
        self, start: int, text: str, end: int, weight: float = 1.0, **description: str
    ) -> None:
        """Add one text from one joint to another."""
        self.choice(start, {text: weight}, end, **description)

    def automaton(self, start: int) -> Automaton:
        """The automaton that begins after the joint `start`. Joints must not form a cycle without
        text."""

        @cache
        def states_after(node: int) -> dict[int, float]:
            """The states after a node, with joints replaced by the states after them."""
            total = sum(self._edges[node].values())
            result = defaultdict(float)
            for target, weight in self._edges[node].items():
                is_joint = self._characters[target] is None
                reached = states_after(target) if is_joint else {target: 1.0}
                for state, probability in reached.items():
                    result[state] += weight / total * probability

            return result

        first = next(iter(states_after(start)))
        number = {first: 0}
        order = [first]  # breadth first; unreachable states are left out
        successors = []
        for node in order:
            for target in states_after(node):
                if target not in number:
                    number[target] = len(order)
                    order.append(target)
            successors.append({number[t]: p for t, p in states_after(node).items()})

        return Automaton(
            "".join(self._characters[node] or "" for node in order),
            tuple(successors),
            tuple(self._descriptions[node] for node in order),
        )
