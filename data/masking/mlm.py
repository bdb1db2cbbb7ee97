"""The interface of the annotated labml implementation, and a masker for training with it."""

from collections.abc import Sequence
from typing import Any

import torch

from data.batch import Batch
from data.masking.corruption import Corruption


class MLM:
    """Selects each position independently. Unlike in the original, one draw decides between
    `[MASK]`, random and unchanged, random tokens are never special, and the argument is not
    modified. As in the original, the settings are attributes."""

    def __init__(
        self,
        *,
        padding_token: int,
        mask_token: int,
        no_mask_tokens: Sequence[int],
        n_tokens: int,
        masking_prob: float = 0.15,
        randomize_prob: float = 0.1,
        no_change_prob: float = 0.1,
    ):
        """`no_mask_tokens` are never selected and never drawn as random tokens. Raises ValueError if
        a share is negative, or both are above 1 together."""
        if (
            min(randomize_prob, no_change_prob) < 0
            or randomize_prob + no_change_prob > 1
        ):
            raise ValueError(
                "randomize_prob and no_change_prob must be at least 0 and at most 1 together"
            )
        self.n_tokens = n_tokens
        self.padding_token = padding_token
        self.mask_token = mask_token
        self.no_mask_tokens = sorted({*no_mask_tokens, padding_token, mask_token})
        self.masking_prob = masking_prob
        self.randomize_prob = randomize_prob
        self.no_change_prob = no_change_prob
        weights = torch.ones(n_tokens)
        weights[self.no_mask_tokens] = 0
        self.corruption = Corruption(
            mask_token=mask_token,
            random_token_weights=weights,
            randomize_prob=randomize_prob,
            no_change_prob=no_change_prob,
        )

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels for token ids `x` of any shape. Labels are `padding_token` where
        nothing was selected."""
        special = torch.tensor(self.no_mask_tokens, device=x.device)
        selection, branch, token = torch.rand((3, *x.shape), device=x.device)
        selected = (selection < self.masking_prob) & ~torch.isin(x, special)
        inputs = torch.where(
            selected, self.corruption.to(x.device)(x, branch, token), x
        )
        labels = torch.where(selected, x, self.padding_token)
        return inputs, labels


class IndependentMasker:
    """Masks training windows with `MLM` or with labml_nn's MLM: each batch has another number of
    selected positions."""

    learns = False

    def __init__(self, mlm: MLM):
        self.mlm = mlm

    def __call__(
        self,
        tokens: torch.Tensor,
        offsets: torch.Tensor,
        masking_prob: float,
        progress: float = 0.0,
        documents: torch.Tensor | None = None,
    ) -> Batch:
        """Mask windows as `Masker` does; `mlm` keeps the rate, and selects single tokens, none of
        them padding."""
        self.mlm.masking_prob = masking_prob
        inputs, labels = self.mlm(tokens.clone())
        positions = torch.nonzero(labels.flatten() != self.mlm.padding_token).flatten()
        return Batch(
            inputs, positions, labels.flatten()[positions], offsets.flatten()[positions]
        )

    def state_dict(self) -> dict[str, Any]:
        """Empty: the MLM draws from PyTorch's own generators, whose states the update saves."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
