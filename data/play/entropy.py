"""The exact entropy rate of an automaton's text, in nats per character: the loss of the best
left-to-right model.

A character can have been written by several states, so the entropy of the next character depends on
the belief: the distribution of the state given all characters so far. If finitely many beliefs can
be reached from a known state, they are the states of an equivalent automaton whose text determines
its states, and the entropy rate is the mean entropy of the next character over their stationary
distribution (Cover and Thomas 2006, section 4.2).
"""

import math
from collections import defaultdict

import torch

from data.play.automaton import Automaton

MAX_BELIEFS = 200_000
# beliefs whose probabilities agree to so many digits are the same; their differences are rounding
# errors
DIGITS = 12

Belief = dict[int, float]  # state -> probability


def determinized(automaton: Automaton) -> Automaton:
    """The equivalent automaton whose states are the beliefs that can be reached from state 0.

    The characters after one of its states are all different: a text and the first state determine
    all states. Raises ArithmeticError if there are more than `MAX_BELIEFS` beliefs, perhaps
    infinitely many.
    """
    automaton = automaton.merged()
    number = {}
    beliefs = []  # breadth first
    characters = ""

    def number_of(character: str, belief: Belief) -> int:
        nonlocal characters
        key = frozenset((state, round(p, DIGITS)) for state, p in belief.items())
        if key not in number:
            number[key] = len(beliefs)
            beliefs.append(belief)
            characters += character

        return number[key]

    number_of(automaton.characters[0], {0: 1.0})
    successors = []
    for belief in beliefs:  # it grows meanwhile
        if len(beliefs) > MAX_BELIEFS:
            raise ArithmeticError(
                f"the automaton's beliefs do not close: there are more than {MAX_BELIEFS:,}"
            )
        joint = defaultdict(lambda: defaultdict(float))
        for state, probability in belief.items():
            for target, p in automaton.successors[state].items():
                joint[automaton.characters[target]][target] += probability * p
        probs = {}
        for character, states in joint.items():
            total = sum(states.values())
            after = {state: p / total for state, p in states.items()}
            probs[number_of(character, after)] = total
        successors.append(probs)

    return Automaton(characters, tuple(successors))


def entropy_rate(automaton: Automaton) -> float:
    """The entropy rate in nats per character. Raises ArithmeticError as `determinized` and
    `stationary` do."""
    beliefs = determinized(automaton)
    entropies = []
    for successors in beliefs.successors:
        entropies.append(-sum(p * math.log(p) for p in successors.values()))

    return float(beliefs.stationary() @ torch.tensor(entropies, dtype=torch.float64))
