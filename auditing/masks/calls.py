"""Serves the calls of an audit of masks, next to the target: in its own process, or in a test's."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from auditing.errors import TargetEnded, TargetError
from auditing.masks.target import Masked, candidates, resolve
from auditing.masks.texts import Text, abstract_text, random_words, tokenized_text
from auditing.masks.tokens import Claims, MaskOptions, TokenIds, attribute, claims, token_ids
from auditing.masks.workers import CAN_FORK, in_workers

PROBE = (32, 64)  # windows of the calls that find out what a target is


@dataclass(frozen=True)
class Facts:
    """The facts about a target that are known before it is measured."""

    kind: str
    tokens: TokenIds
    claims: Claims
    can_fork: bool


def functions(imported: Any) -> dict[str, Callable[..., Any]]:
    """The calls of an audit, by name: `probe`, then `write`, `seed`, `mask` and `mask_in_workers` in any order."""
    host = MasksHost(resolve(imported))
    calls = (host.probe, host.write, host.seed, host.mask, host.mask_in_workers)
    return {call.__name__: call for call in calls}


class MasksHost:
    """Holds the masker and the texts, so that calls only name rows of them."""

    def __init__(self, function: Any):
        self.function = function
        self.texts: dict[str, Text] = {}
        self.words: list[str] | None = None  # for the texts of a tokenizer; empty if it has no words

    def probe(self, options: MaskOptions) -> Facts:
        """Find out how the target is called and what the ids mean.

        The calls run in a worker process: a masker's own generator is still unused afterwards.
        """
        tokens = token_ids(self.function, options)
        if tokens is None:
            raise TargetError("the number of tokens is unknown: state --n-tokens (n_tokens=), and --special (special=)")
        self.tokens = tokens
        problems = []
        for target in candidates(self.function, options.kind):
            self.target = target
            try:
                self.write("probe", *PROBE, False, options.seed)
                ((masked,),) = self.mask_in_workers("probe", np.arange(PROBE[0]), 1, 1, options.seed)
            except TargetEnded:
                raise
            except TargetError as error:
                problems.append(str(error))
                continue
            self.tokens = tokens = self._learned(tokens, masked)
            return Facts(self.target.kind, tokens, claims(self.function), CAN_FORK)
        raise TargetError(problems[0])

    def _learned(self, tokens: TokenIds, masked: Masked) -> TokenIds:
        """If no special id is stated, the id that most changed positions have is [MASK]."""
        changed = masked.inputs[masked.inputs != self.texts["probe"].ids]
        if tokens.special or not len(changed):
            return tokens
        ids, counts = np.unique(changed, return_counts=True)
        return tokens.with_special([], int(ids[counts.argmax()]) if counts.max() > len(changed) / 2 else None)

    def write(self, name: str, n_windows: int, width: int, is_ragged: bool, seed: int) -> Text:
        """Write a text for the target; it is kept under `name`."""
        size = (n_windows, width, is_ragged, seed)
        tokenizer = attribute(self.function, ["tokenizer"]) if self.target.kind != "tensor" else None
        if self.words is None and callable(tokenizer):
            try:
                self.words = random_words(tokenizer, self.tokens, np.random.default_rng(seed))
            except (ValueError, TypeError, NotImplementedError):  # a tokenizer without words or of another interface
                self.words = []
        if callable(tokenizer) and self.words:
            self.texts[name] = tokenized_text(tokenizer, self.words, self.tokens.padding, *size)
        else:
            self.texts[name] = abstract_text(self.tokens, *size)
        return self.texts[name]

    def seed(self, seed: int) -> None:
        """Seed all global generators."""
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def mask(self, name: str, rows: np.ndarray) -> Masked:
        """Mask some windows of a text."""
        return self.target(self.texts[name], rows, self.tokens)

    def mask_in_workers(
        self, name: str, rows: np.ndarray, n_workers: int, n_calls: int, seed: int
    ) -> list[list[Masked]]:
        """Mask the same windows `n_calls` times in each of some workers."""
        try:
            return in_workers(lambda: self.mask(name, rows), n_workers, n_calls, seed)
        except TargetEnded as error:
            shape = [len(rows), self.texts[name].ids.shape[1]]
            raise TargetError(f"called with ids int64 {shape}: {error}") from error
