"""Masks units of several characters, such as words, in proportion to their weights."""

from typing import Any

import torch

from data.batch import IGNORED_LABEL, Batch
from data.masking.masker import Masker, n_masked_in
from data.masking.sampling import first_columns, sampling_order
from data.masking.segmenters import Segmenter


class SegmentMasker(Masker):
    """Masks as many characters of every window as `Masker`, but those of the same unit together.

    The segmenter's units are drawn in proportion to their weights: each gets a random time, and the
    earliest are masked until the budget is spent. The last unit is taken in part (see
    `data.masking.sampling`).
    """

    def __init__(
        self,
        *args: Any,
        segmenter: Segmenter,
        static_text_len: int = 0,
        corrupt_units: bool = False,
        **options: Any,
    ):
        """With `static_text_len`, the length of the training text, a window always gets the same
        masks (BERT's original data); with 0, they are new each time (RoBERTa, Liu et al. 2019).
        With `corrupt_units`, all of a unit becomes `[MASK]`, or random, or stays (SpanBERT, Joshi
        et al. 2020). The other arguments are those of `Masker`."""
        super().__init__(*args, **options)
        self.segmenter = segmenter.to(self.generator.device)
        self.static_draws = self.uniform(static_text_len) if static_text_len else None
        self.corrupt_units = corrupt_units
        self.learns = segmenter.learns

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
        unit crosses a border, and a window with padding has fewer labels."""
        seq_len = tokens.shape[1]
        n_masked = n_masked_in(seq_len, masking_prob)
        units, weights = self.segmenter(offsets, self.generator, progress)
        if self.static_draws is None:
            selection_draws, branch_draws, token_draws = self.uniform(*offsets.shape)
        else:
            selection_draws, branch_draws, token_draws = self.static_draws[:, offsets]

        # Select the columns whose units have the earliest random times in each window.
        selectable = ~self.is_excluded(tokens)
        if documents is not None:
            # neighbors with the same number are one unit
            units = units.long() * (seq_len + 1) + documents
            is_text = documents != 0
            selectable &= is_text
        order, times = sampling_order(units, weights, selection_draws, selectable)
        columns = order[:, :n_masked]
        is_selected = times[:, :n_masked].isfinite()
        if documents is not None:
            share = is_text.sum(1, keepdim=True) / seq_len
            rank = torch.arange(n_masked, device=tokens.device)
            is_selected &= rank < (share * n_masked).round().clamp(min=1)

        if self.corrupt_units:
            branch_draws = branch_draws.gather(1, first_columns(units))
        batch = self.masked(tokens, columns, is_selected, branch_draws, token_draws)
        return batch._replace(offsets=offsets.gather(1, columns))

    def observe(self, batch: Batch, losses: torch.Tensor) -> None:
        """Report the model's `losses` `[batch, n_masked]`, in nats, to the segmenter: the only
        feedback from model to data. The first label of a window takes the place of ignored ones,
        because dropping them would synchronize."""
        assert batch.offsets is not None
        is_ignored = batch.labels == IGNORED_LABEL
        offsets = torch.where(is_ignored, batch.offsets[:, :1], batch.offsets)
        losses = torch.where(is_ignored, losses[:, :1], losses)
        self.segmenter.observe(offsets.flatten(), losses.flatten())

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"segmenter": self.segmenter.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.segmenter.load_state_dict(state["segmenter"])
