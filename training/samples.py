"""Masked text with the model's guesses, to look at while it trains."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from data.masking import n_masked_in
from data.vocabulary import Vocabulary

SEED = 0  # the same characters are hidden every time, so that two samples can be compared


@dataclass(frozen=True)
class Guess:
    """One character of a sample: shown to the model, or hidden and guessed."""

    truth: str
    guess: str | None = None  # None: the character was visible

    @property
    def is_right(self) -> bool:
        return self.guess == self.truth


@torch.no_grad()
def sample(
    model: nn.Module, prompts: Sequence[str], vocabulary: Vocabulary, masking_prob: float, device: torch.device
) -> list[list[Guess]]:
    """Hide a share of every prompt's characters behind `[MASK]` and let the model guess them.

    Dropout is off, and the random numbers of training are not touched. Raises ValueError for a prompt with
    characters that the vocabulary does not have.
    """
    generator = torch.Generator().manual_seed(SEED)
    was_training = model.training
    model.eval()
    samples = []
    for prompt in prompts:
        ids = vocabulary.encode(prompt)
        order = torch.rand(len(ids), generator=generator).argsort()
        hidden = order[: n_masked_in(len(ids), masking_prob)].sort().values
        inputs = ids.index_fill(0, hidden, vocabulary.mask_token)
        logits = model(inputs[None].to(device), hidden.to(device))
        guesses = logits[:, : vocabulary.n_chars].argmax(-1).cpu()
        guess_at = {int(place): vocabulary.decode([guess]) for place, guess in zip(hidden, guesses, strict=True)}
        samples.append([Guess(truth, guess_at.get(place)) for place, truth in enumerate(prompt)])
    model.train(was_training)
    return samples
