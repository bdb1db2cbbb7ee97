"""The truth as a model: the exact posterior of an automaton, behind the interface of every model.

Samplers, likelihoods and measures take it in place of a trained model. Any error that they then
show is their own.
"""

import torch
from torch import Tensor, nn

from data.play.automaton import Automaton
from data.play.floor import Floor
from data.vocabulary import Vocabulary

# of a visible character, in a text that the automaton cannot have written
MISPRINT_PROB = 1e-6


class TruePosterior(nn.Module):
    """P(character | all visible characters), exactly, for texts of an automaton in the ids of a
    vocabulary.

    A sampler can write a text that the automaton cannot have written, and a posterior given it does
    not exist. Then each visible character may be a misprint, with probability 1e-6, and the
    posterior assumes as few of them as possible. Raises ValueError if the vocabulary lacks a
    character of the automaton, or if tokens are not characters.
    """

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary):
        super().__init__()
        if not vocabulary.is_characters:
            raise ValueError(
                f"the exact posterior is one of characters, and the tokens are {vocabulary.tokens}"
            )

        missing = sorted(set(automaton.alphabet) - set(vocabulary.characters))
        if missing:
            raise ValueError(
                f"the vocabulary lacks the character {missing[0]!r} of the automaton"
            )
        self.floor = Floor(automaton)
        self.n_tokens = vocabulary.n_tokens
        self.token_of_char = vocabulary.encode(automaton.alphabet)
        hidden = self.floor.n_chars
        foreign = self.floor.n_chars + 1
        self.char_of_token = torch.full((vocabulary.n_tokens,), foreign)
        self.char_of_token[vocabulary.n_ordinary :] = hidden
        self.char_of_token[self.token_of_char] = torch.arange(self.floor.n_chars)

    def to_floor(self, ids: Tensor) -> Tensor:
        """The floor's ids of the vocabulary's: `n_chars` for special tokens, and `n_chars + 1` for
        other characters."""
        return self.char_of_token[ids.cpu()]

    @torch.no_grad()
    def forward(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """Log-probabilities `[n, n_tokens]` (float64) for inputs `[batch, seq_len]`, on the device
        of `inputs`.

        `positions` are distinct indices into `inputs.flatten()`; without them, all positions are
        predicted. A visible character has probability 1. Tokens that the automaton does not write
        have -inf.
        """
        shown = self.to_floor(inputs)
        chosen = (
            torch.arange(shown.numel())
            if positions is None
            else positions.cpu().flatten()
        )
        wanted = torch.zeros(shown.numel(), dtype=torch.bool)
        wanted[chosen] = True
        by_char = self._posteriors(shown, wanted.view(shown.shape))
        row = (wanted.cumsum(0) - 1)[chosen]
        logits = torch.full(
            (len(chosen), self.n_tokens), -torch.inf, dtype=torch.float64
        )
        logits[:, self.token_of_char] = by_char[row].log()

        return logits.to(inputs.device)

    def _posteriors(self, shown: Tensor, wanted: Tensor) -> Tensor:
        """The posteriors at wanted positions, `[n_wanted, n_chars]`; with misprints in impossible
        texts only."""
        try:
            return self.floor.posteriors(shown, wanted)
        except ValueError:
            possible = self.floor.log_probability(shown).isfinite()

        all_posteriors = torch.zeros(
            *shown.shape, self.floor.n_chars, dtype=torch.float64
        )
        for texts, misprint_prob in ((possible, 0.0), (~possible, MISPRINT_PROB)):
            if texts.any():
                posteriors = self.floor.posteriors(
                    shown[texts], wanted[texts], misprint_prob
                )
                all_posteriors[wanted & texts[:, None]] = posteriors

        return all_posteriors[wanted]
