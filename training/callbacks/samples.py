"""Shows the model's guesses for masked prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from data.masking import n_masked_in
from data.vocabulary import Vocabulary
from training.callbacks.callback import Callback
from training.evaluation import evaluating

SEED = 0  # masks the same characters every time, so that samples can be compared


@dataclass(frozen=True)
class Guess:
    """A token of a sample, which the model has seen or guessed."""

    truth: str
    guess: str | None = None  # None: it was visible

    @property
    def is_correct(self) -> bool:
        return self.guess == self.truth


class Samples(Callback):
    """Shows after some evaluations the model's guesses for masked prompts."""

    def __init__(self, prompts: Sequence[str], vocabulary: Vocabulary, every_evaluations: int):
        self.prompts, self.vocabulary, self.every_evaluations = (
            prompts,
            vocabulary,
            every_evaluations,
        )

    def evaluated(
        self, trainer: Any, row: Mapping[str, Any], best: Mapping[str, Any] | None
    ) -> None:
        if trainer.n_evaluations % self.every_evaluations == 0:
            trainer.call(
                "sampled", sample(trainer.model, self.prompts, self.vocabulary, row["masking_prob"])
            )


def sample(
    model: nn.Module, prompts: Sequence[str], vocabulary: Vocabulary, masking_prob: float
) -> list[list[Guess]]:
    """Replace a share of every prompt's tokens by `[MASK]` and let the model guess them.

    Dropout is off, and the RNG states of training do not change. Raises ValueError for a prompt
    with characters that the vocabulary does not have.
    """
    generator = torch.Generator().manual_seed(SEED)
    device = next(model.parameters()).device
    samples = []
    for prompt in prompts:
        ids = vocabulary.encode(prompt)
        order = torch.rand(len(ids), generator=generator).argsort()
        order = order[ids[order] < vocabulary.n_ordinary]  # [UNK] is not a target
        masked = order[: n_masked_in(len(ids), masking_prob)].sort().values
        inputs = ids.index_fill(0, masked, vocabulary.mask_token)
        with evaluating(model, device):
            logits = model(inputs[None].to(device), masked.to(device))
        guesses = logits[:, : vocabulary.n_ordinary].argmax(-1).cpu()
        guess_at = {
            int(i): vocabulary.decode([guess]) for i, guess in zip(masked, guesses, strict=True)
        }
        parts = (
            prompt if vocabulary.is_characters else [vocabulary.decode([i]) for i in ids.tolist()]
        )
        samples.append([Guess(truth, guess_at.get(i)) for i, truth in enumerate(parts)])
    return samples
