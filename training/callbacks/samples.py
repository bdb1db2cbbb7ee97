"""Shows the model's guesses for masked prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from data.masking import n_masked_in
from data.vocabulary import Vocabulary
from training.callbacks.callback import Callback, Row, Weights
from training.evaluation import evaluating
from training.loop import Trainer

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

    def __init__(
        self, prompts: Sequence[str], vocabulary: Vocabulary, every_evaluations: int
    ):
        self.prompts = prompts
        self.vocabulary = vocabulary
        self.every_evaluations = every_evaluations

    def evaluated(self, trainer: Trainer, row: Row, best: Weights | None) -> None:
        if trainer.n_evaluations % self.every_evaluations == 0:
            samples = sample(
                trainer.model, self.prompts, self.vocabulary, row["masking_prob"]
            )
            for callback in trainer.callbacks:
                callback.sampled(trainer, samples)


def sample(
    model: nn.Module,
    prompts: Sequence[str],
    vocabulary: Vocabulary,
    masking_prob: float,
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
        targets = order[ids[order] < vocabulary.n_ordinary]  # [UNK] is not a target
        masked = targets[: n_masked_in(len(ids), masking_prob)].sort().values
        inputs = ids.index_fill(0, masked, vocabulary.mask_token)
        with evaluating(model, device):
            logits = model(inputs[None].to(device), masked.to(device))
        guessed = logits[:, : vocabulary.n_ordinary].argmax(-1).cpu()

        shown = list(prompt)  # a character per token
        if not vocabulary.is_characters:
            shown = [vocabulary.decode([token]) for token in ids.tolist()]
        guesses = [Guess(truth) for truth in shown]
        for position, token in zip(masked.tolist(), guessed.tolist(), strict=True):
            guesses[position] = Guess(shown[position], vocabulary.decode([token]))
        samples.append(guesses)

    return samples
