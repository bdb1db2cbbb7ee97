"""Writes texts with a masked language model: masked diffusion, from blanks to text in a given
number of steps.

In each step the order chooses blanks, and each gets a token drawn from the model's probabilities.
The tokens of a step do not see each other. If the model's probabilities are exact and each step
writes one token, the probabilities of the texts are exact too.

Austin et al. 2021 (D3PM, arXiv 2107.03006), Sahoo et al. 2024 (MDLM, arXiv 2406.07524), Nie et al.
2025 (LLaDA, arXiv 2502.09992).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from trained.batches import pieces
from trained.template import readable
from training.evaluation import takes_documents

TIE = 1e-6  # scores with a smaller difference are ordered at random


def margin(probabilities: Tensor) -> Tensor:
    """The gap between the two largest of the probabilities `[n_blanks, n_ordinary]`, `[n_blanks]`.

    From Kim et al. 2025, "Train for the Worst, Plan for the Best", arXiv 2502.06768.
    """
    # padded for vocabularies of one token
    best = F.pad(probabilities, (0, 1)).topk(2).values
    return best[:, 0] - best[:, 1]


# Orders give each blank a score, and the blanks with the highest scores come first. These read the
# probabilities `[n_blanks, n_ordinary]` of the blanks' tokens and return scores `[n_blanks]`.
# MaskGIT (Chang et al. 2022) compares the probabilities of tokens that it has drawn, which favors
# probable ones. Here the draw comes later.
BY_PROBABILITY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "confidence": lambda probabilities: probabilities.amax(-1),
    "entropy": lambda probabilities: (
        -torch.special.entr(probabilities).sum(-1)
    ),  # in nats
    "margin": margin,
}
# These do not read the model: random numbers `[n, length]` become scores of the same shape.
BLIND: Mapping[str, Callable[[Tensor], Tensor]] = {
    "random": lambda uniform: uniform,
    # falls from column to column
    "left-to-right": lambda uniform: -torch.ones_like(uniform).cumsum(1),
}
ORDERS = (*BLIND, *BY_PROBABILITY)


@dataclass(frozen=True)
class Sampler:
    """Writes tokens below `n_ordinary` in place of blanks, which are `mask_token`.

    `model(ids, positions)` returns logits `[n_positions, n_tokens]`. `order` is one of `ORDERS`. A
    `temperature` of 0 takes the most probable tokens. `remask` is the probability with which, after
    each step but the last, each written token becomes a blank again; the next step writes
    correspondingly more (ReMDM, Wang et al. 2025, arXiv 2503.00307, with a constant probability).
    """

    model: nn.Module
    mask_token: int
    n_ordinary: int
    order: str = "random"
    temperature: float = 1.0
    remask: float = 0.0
    # [n, length] the number of each token's document in its text; None: each text is a document
    documents: Tensor | None = None

    @torch.no_grad()
    def write(
        self, ids: Tensor, steps: int, generators: Sequence[Generator]
    ) -> Iterator[Tensor]:
        """The texts after each step, `[n, length]`, from `ids` `[n, length]`, whose other tokens
        stay.

        After step k of K, a text with B blanks has B * (1 - k / K) of them left, rounded. K is
        `steps`, or the number of blanks if that is smaller. Each text has its own generator (on the
        CPU), so it does not depend on the others.
        """
        is_free = ids == self.mask_token
        n_blanks = is_free.sum(1)
        n_steps = n_blanks.clamp(min=1, max=steps)  # of each text
        for k in range(1, min(steps, int(n_blanks.max())) + 1):
            if self.remask and k > 1:
                is_again = is_free & (uniform(generators, ids) < self.remask)
                is_again &= (k <= n_steps)[:, None]
                ids = ids.masked_fill(is_again, self.mask_token)

            n_to_come = (n_steps - k).clamp(min=0)
            # rounded in whole numbers
            n_left = (2 * n_blanks * n_to_come + n_steps) // (2 * n_steps)
            counts = (ids == self.mask_token).sum(1) - n_left
            chosen, log_probs = self.choose(ids, counts, generators)
            tokens = draw(log_probs, uniform(generators, ids)[chosen], self.temperature)
            ids = ids.masked_scatter(chosen, tokens)
            yield ids

    def choose(
        self, ids: Tensor, counts: Tensor, generators: Sequence[Generator]
    ) -> tuple[Tensor, Tensor]:
        """The blanks of `ids` `[n, length]` that come next, `counts` `[n]` of each text, by the
        order.

        Returns where they are, bool `[n, length]`, and the log-probabilities of their tokens,
        `[n_chosen, n_ordinary]`.
        """
        blanks = ids == self.mask_token
        if self.order in BLIND:
            chosen = highest(
                BLIND[self.order](uniform(generators, ids)), blanks, counts
            )
            return chosen, self.log_probabilities(ids, chosen)

        log_probs = self.log_probabilities(ids, blanks)
        # All blanks of an empty text are equal. Random ties keep a step from choosing adjacent
        # ones.
        scores = TIE * uniform(generators, ids)
        scores[blanks] += BY_PROBABILITY[self.order](log_probs.exp())
        chosen = highest(scores, blanks, counts)

        return chosen, log_probs[chosen[blanks]]

    def write_in_pieces(
        self, ids: Tensor, steps: int, generators: Sequence[Generator], window: int
    ) -> Iterator[Tensor]:
        """As `write`, for texts of any length: the model reads `window` tokens at once.

        The pieces are written one after the other, and each sees at least the half window before
        it. The `steps` are shared among the pieces in proportion to their blanks; each gets at
        least one.
        """
        total = int((ids == self.mask_token).sum(1).max())
        steps = min(steps, total)
        n_done = 0
        n_used = 0
        for part, _ in pieces(ids.shape[1], window):
            n_blanks = int((ids[:, part] == self.mask_token).sum(1).max())
            if n_blanks:
                n_done += n_blanks
                n_steps = max(1, steps * n_done // total - n_used)
                n_used += n_steps
                for piece in self.write(ids[:, part], n_steps, generators):
                    ids = torch.cat(
                        [ids[:, : part.start], piece, ids[:, part.stop :]], 1
                    )
                    yield ids

    def log_probabilities(self, ids: Tensor, where: Tensor) -> Tensor:
        """Log-probabilities `[n, n_ordinary]` (float64) of the tokens where `where` `[n, length]`
        is true."""
        # float64 stays on the CPU
        device = next((weight.device for weight in self.model.parameters()), ids.device)
        masks = {}
        if self.documents is not None and takes_documents(self.model):
            masks["attention_mask"] = self.documents.to(device)
        visible = readable(ids, self.mask_token).to(device)
        positions = where.flatten().nonzero().flatten().to(device)
        logits = self.model(visible, positions, **masks)
        return logits[:, : self.n_ordinary].cpu().double().log_softmax(-1)


def highest(scores: Tensor, blanks: Tensor, counts: Tensor) -> Tensor:
    """Where the `counts` `[n]` blanks with the highest scores are, `[n, length]`."""
    ranks = (
        scores.masked_fill(~blanks, -torch.inf).argsort(1, descending=True).argsort(1)
    )
    return ranks < counts[:, None]


def draw(log_probs: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """Tokens `[n]` by their log-probabilities `[n, n_ordinary]`: the first at which the sum of the
    probabilities exceeds `uniform` `[n]`. Both are float64.

    The usual argmax with Gumbel noise in float32 draws improbable tokens too rarely, which is a
    lower temperature (Zheng et al. 2024, arXiv 2409.02908).
    """
    relative = log_probs - log_probs.amax(-1, keepdim=True)
    if temperature == 0:
        return relative.argmax(-1)
    sums = (relative / temperature).exp().cumsum(-1)
    return torch.searchsorted(
        sums, uniform[:, None] * sums[:, -1:], right=True
    ).squeeze(1)


def uniform(generators: Sequence[Generator], ids: Tensor) -> Tensor:
    """Random numbers in [0, 1) of the shape of `ids` `[n, length]` (float64), each row from its own
    generator."""
    rows = [
        torch.rand(ids.shape[1], generator=generator, dtype=torch.float64)
        for generator in generators
    ]
    return torch.stack(rows).to(ids.device)
