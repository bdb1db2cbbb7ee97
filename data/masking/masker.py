"""Draws the masks of training windows: which tokens (by default, characters) to hide, and which
tokens the model gets in their place."""

from collections.abc import Sequence
from typing import Any

import torch

from data.batch import IGNORED_LABEL, Batch
from data.generators import restore_generator
from data.masking.corruption import Corruption


class Masker:
    """Selects `n_masked_in` tokens of every training window, each with the same probability, and
    replaces them (BERT, Devlin et al. 2018).

    If a window has too few tokens that may be selected, all of them are, and IGNORED_LABEL fills
    the other labels: shapes never depend on the data. `data.masking.segment_masker` has the masker
    of all other strategies.
    """

    learns = False  # whether later masks depend on the model's losses

    def __init__(
        self,
        corruption: Corruption,
        *,
        seed: int,
        device: torch.device,
        no_mask_tokens: Sequence[int] = (),
    ):
        """`corruption` replaces selected tokens by `[MASK]`, by random tokens, or not at all;
        `no_mask_tokens` are never selected."""
        self.corruption = corruption.to(device)
        self.no_mask_tokens = torch.tensor(
            no_mask_tokens, dtype=torch.int64, device=device
        )
        self.generator = torch.Generator(device=device).manual_seed(seed)

    def __call__(
        self,
        tokens: torch.Tensor,
        offsets: torch.Tensor,
        masking_prob: float,
        progress: float = 0.0,
        documents: torch.Tensor | None = None,
    ) -> Batch:
        """Mask windows of `tokens` `[batch, seq_len]`. Other maskers also read the `offsets` of the
        tokens in the training text, `progress`, the share of the training budget that is spent, and
        the numbers of the tokens' `documents`.
        """
        n_masked = n_masked_in(tokens.shape[1], masking_prob)
        selection_draws, branch_draws, token_draws = self.uniform(*tokens.shape)

        # Select the tokens with the largest draws in each window; excluded ones come last.
        selection_draws = selection_draws.masked_fill(self.is_excluded(tokens), -1.0)
        largest = selection_draws.sort(dim=1, descending=True, stable=True)
        columns = largest.indices[:, :n_masked]  # [batch, n_masked]
        is_selected = largest.values[:, :n_masked] >= 0  # False at excluded tokens
        return self.masked(tokens, columns, is_selected, branch_draws, token_draws)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Three uniform numbers in [0, 1) per token, `[3, *shape]`: the first selects it, the
        second decides between `[MASK]`, a random token and no change, and the third draws the
        random token."""
        return torch.rand(
            (3, *shape), generator=self.generator, device=self.generator.device
        )

    def is_excluded(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.isin(tokens, self.no_mask_tokens)

    def masked(
        self,
        tokens: torch.Tensor,
        columns: torch.Tensor,
        is_selected: torch.Tensor,
        branch_draws: torch.Tensor,
        token_draws: torch.Tensor,
    ) -> Batch:
        """The batch with the tokens in `columns` `[batch, n_masked]` replaced where `is_selected`.
        The draws for the corruption are `[batch, seq_len]`."""
        batch_size, seq_len = tokens.shape
        originals = tokens.gather(1, columns)
        corrupted = self.corruption(
            originals, branch_draws.gather(1, columns), token_draws.gather(1, columns)
        )
        corrupted = torch.where(is_selected, corrupted, originals)
        window_begins = torch.arange(
            0, batch_size * seq_len, seq_len, device=tokens.device
        )
        return Batch(
            inputs=tokens.scatter(1, columns, corrupted),
            positions=columns + window_begins[:, None],  # indices into inputs.flatten()
            labels=torch.where(is_selected, originals, IGNORED_LABEL),
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the masks still to come."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])


def n_masked_in(seq_len: int, masking_prob: float) -> int:
    """The number of masked tokens per window; at least one, or there would be nothing to learn."""
    return max(1, round(masking_prob * seq_len))
