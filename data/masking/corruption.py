"""Replaces the selected tokens by `[MASK]`, by random tokens, or not at all (BERT, Devlin et al.
2018)."""

from typing import Self

import torch


class Corruption:
    """One uniform draw u per token decides, so the shares are exact in expectation: u <
    randomize_prob gives a random token, the next no_change_prob of the range leaves the token, and
    the rest gives `[MASK]`."""

    def __init__(
        self,
        *,
        mask_token: int,
        random_token_weights: torch.Tensor,
        randomize_prob: float = 0.1,
        no_change_prob: float = 0.1,
    ):
        """`random_token_weights` `[n_tokens]` are proportional to how often each id is the random
        token; 0 means never."""
        self.mask_token = mask_token
        self.randomize_prob = randomize_prob
        self.no_change_prob = no_change_prob
        # Inverse transform sampling: a draw selects the first random_ids[i] with cumulative[i] >
        # draw.
        self.random_ids = torch.nonzero(random_token_weights.cpu()).flatten()
        weights = random_token_weights.cpu()[self.random_ids].to(torch.float64)
        self.cumulative = (weights.cumsum(0) / weights.sum()).to(torch.float32)

    def to(self, device: torch.device) -> Self:
        """Move to `device`, in place."""
        self.random_ids = self.random_ids.to(device)
        self.cumulative = self.cumulative.to(device)
        return self

    def __call__(
        self,
        tokens: torch.Tensor,
        branch_draws: torch.Tensor,
        token_draws: torch.Tensor,
    ) -> torch.Tensor:
        """Corrupt `tokens`. The draws, of the same shape and uniform in [0, 1), select the branch
        and the random id."""
        # Each draw finds an id: draws are below 1, the last value of `cumulative`.
        index = torch.searchsorted(self.cumulative, token_draws, right=True)
        is_random = branch_draws < self.randomize_prob
        is_changed = is_random | (
            branch_draws >= self.randomize_prob + self.no_change_prob
        )
        replacements = torch.where(is_random, self.random_ids[index], self.mask_token)
        return torch.where(is_changed, replacements, tokens)
