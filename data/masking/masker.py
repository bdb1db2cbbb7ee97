"""Draws the masks of training windows: which characters to hide, and what the model gets in their
place."""

from collections.abc import Sequence
from typing import Any

import torch

from data.batch import IGNORED_LABEL, Batch
from data.generators import restore_generator
from data.masking.corruption import Corruption
from data.masking.sampling import first_columns, sampling_order
from data.masking.segmenters import Segmenter


class Masker:
    """Masks exactly `round(masking_prob * seq_len)` positions of every training window.

    The segmenter's units are drawn in proportion to their weights: each gets a random time, and the
    earliest are masked until the budget is spent. The last unit is taken in part (see
    `data.masking.sampling`). If a window has too few characters
    that may be selected, all of them are, and IGNORED_LABEL fills the other labels: shapes never
    depend on the data.
    """

    def __init__(
        self,
        corruption: Corruption,
        *,
        segmenter: Segmenter,
        seed: int,
        device: torch.device,
        no_mask_tokens: Sequence[int] = (),
        static_text_len: int = 0,
        corrupt_units: bool = False,
    ):
        """`no_mask_tokens` are never selected. With `static_text_len`, the length of the training
        text, a window always gets the same masks (BERT's original data); with 0, they are new each
        time (RoBERTa, Liu et al. 2019). With `corrupt_units`, all of a unit becomes `[MASK]`, or
        random, or stays (SpanBERT, Joshi et al. 2020)."""
        self.corruption = corruption.to(device)
        self.segmenter = segmenter.to(device)
        self.no_mask_tokens = torch.tensor(
            no_mask_tokens, dtype=torch.int64, device=device
        )
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.static_draws = self._uniform(static_text_len) if static_text_len else None
        self.corrupt_units = corrupt_units

    def __call__(
        self,
        tokens: torch.Tensor,
        offsets: torch.Tensor,
        masking_prob: float,
        progress: float = 0.0,
        documents: torch.Tensor | None = None,
    ) -> Batch:
        """Mask windows of `tokens` at `offsets` of the training text, both `[batch, seq_len]`.
        `progress` is the share of the training budget that is spent; mixtures may change with it.
        `documents` `[batch, seq_len]` are the numbers of the tokens' documents, 0 at padding: no
        unit crosses a border, and a window with padding has fewer labels.
        """
        batch_size, seq_len = tokens.shape
        n_masked = n_masked_in(seq_len, masking_prob)

        # Which characters form a unit, and three uniform numbers for each character.
        units, weights = self.segmenter(offsets, self.generator, progress)
        selection_draws, branch_draws, token_draws = self._draws(
            offsets
        )  # each [batch, seq_len]

        if documents is not None:
            # neighbors with the same number are one unit
            units = units.long() * (seq_len + 1) + documents

        # Select the n_masked columns of each window whose units have the earliest random times.
        selectable = (
            ~torch.isin(tokens, self.no_mask_tokens)
            if len(self.no_mask_tokens)
            else None
        )
        if documents is not None:
            is_text = documents != 0
            selectable = is_text if selectable is None else selectable & is_text
        order, times = sampling_order(units, weights, selection_draws, selectable)
        columns = order[:, :n_masked]
        is_selected = times[
            :, :n_masked
        ].isfinite()  # False if the window had none left
        if documents is not None:
            share = is_text.sum(1, keepdim=True) / seq_len
            rank = torch.arange(n_masked, device=tokens.device)
            is_selected &= rank < (share * n_masked).round().clamp(min=1)

        # Replace the characters there.
        if self.corrupt_units:
            branch_draws = branch_draws.gather(1, first_columns(units))
        originals = tokens.gather(1, columns)
        corrupted = self.corruption(
            originals, branch_draws.gather(1, columns), token_draws.gather(1, columns)
        )
        inputs = tokens.scatter(
            1, columns, torch.where(is_selected, corrupted, originals)
        )

        window_begins = torch.arange(
            0, batch_size * seq_len, seq_len, device=tokens.device
        )
        return Batch(
            inputs,
            positions=columns + window_begins[:, None],
            labels=torch.where(is_selected, originals, IGNORED_LABEL),
            offsets=offsets.gather(1, columns),
        )

    @property
    def learns(self) -> bool:
        """Whether `observe` changes the masks to come."""
        return self.segmenter.learns

    def observe(self, batch: Batch, losses: torch.Tensor) -> None:
        """Report the model's `losses` `[batch, n_masked]`, in nats, to the segmenter: the only
        feedback from model to data."""
        assert batch.offsets is not None
        self.segmenter.observe(batch.offsets.flatten(), losses.flatten())

    def _draws(self, offsets: torch.Tensor) -> torch.Tensor:
        """Three uniform numbers for each character: for its selection, for the branch of the
        corruption, and for the random token; `[3, batch, seq_len]`."""
        if self.static_draws is not None:
            return self.static_draws[:, offsets]
        return self._uniform(*offsets.shape)

    def _uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(
            (3, *shape), generator=self.generator, device=self.generator.device
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the masks still to come."""
        return {
            "generator": self.generator.get_state(),
            "segmenter": self.segmenter.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])
        self.segmenter.load_state_dict(state["segmenter"])


def n_masked_in(seq_len: int, masking_prob: float) -> int:
    """The number of masked positions per window; at least one, or there would be nothing to learn."""
    return max(1, round(masking_prob * seq_len))
