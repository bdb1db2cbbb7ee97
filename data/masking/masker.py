"""Draws the masks of training windows: which characters to hide, and what the model gets in their
place."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from data.generators import restore_generator
from data.masking.corruption import Corruption
from data.masking.sampling import first_columns, sampling_order
from data.masking.segmenters import Segmenter

IGNORED_LABEL = -100  # PyTorch's cross-entropy ignores it; id 0 is a real character


class MaskedBatch(NamedTuple):
    """A batch of masked windows, the input of a training step."""

    inputs: torch.Tensor  # [batch, seq_len] token ids, corrupted at the selected positions
    positions: torch.Tensor  # [n_masked] indices of the selected characters in inputs.flatten()
    # [n_masked] the original ids there, or IGNORED_LABEL where the window had none left to select
    labels: torch.Tensor
    offsets: torch.Tensor  # [n_masked] offsets of these characters in the training text
    # for a second objective, as in the windows, each [batch, ...]
    further: tuple[torch.Tensor, ...] = ()
    # whether every window has the same number of positions, and they are listed window by window
    is_even: bool = False


class Masker:
    """Masks exactly `round(masking_prob * seq_len)` positions of every training window.

    The segmenter's units are drawn in proportion to their weights until the budget is spent; the
    last unit is taken in part (see `data.masking.sampling`). If a window has too few characters
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
        self.no_mask_tokens = torch.tensor(no_mask_tokens, dtype=torch.int64, device=device)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.static_draws = self._uniform(3, static_text_len) if static_text_len else None
        self.corrupt_units = corrupt_units

    def __call__(
        self,
        tokens: torch.Tensor,
        offsets: torch.Tensor,
        masking_prob: float,
        progress: float = 0.0,
    ) -> MaskedBatch:
        """Mask windows of `tokens` at `offsets` of the training text, both `[batch, seq_len]`.
        `progress` is the share of the training budget that is spent; mixtures may change with it.
        """
        batch, seq_len = tokens.shape
        n_masked = n_masked_in(seq_len, masking_prob)
        units, weights = self.segmenter(offsets, self.generator, progress)
        draws = (
            self._uniform(3, batch, seq_len)
            if self.static_draws is None
            else self.static_draws[:, offsets]
        )
        selectable = ~torch.isin(tokens, self.no_mask_tokens) if len(self.no_mask_tokens) else None
        order, times = sampling_order(units, weights, draws[0], selectable)
        columns, is_selected = order[:, :n_masked], times[:, :n_masked].isfinite().flatten()
        positions = (
            columns + torch.arange(0, batch * seq_len, seq_len, device=tokens.device)[:, None]
        ).flatten()

        branch = draws[1].gather(1, first_columns(units)) if self.corrupt_units else draws[1]
        flat = tokens.flatten()
        originals = flat[positions]
        corrupted = self.corruption(
            originals, torch.stack([branch, draws[2]]).flatten(1)[:, positions]
        )
        inputs = flat.index_put((positions,), torch.where(is_selected, corrupted, originals))
        labels = torch.where(is_selected, originals, IGNORED_LABEL)
        return MaskedBatch(
            inputs.view(batch, seq_len),
            positions,
            labels,
            offsets.flatten()[positions],
            is_even=True,
        )

    @property
    def learns(self) -> bool:
        """Whether `observe` changes the masks to come."""
        return self.segmenter.learns

    def observe(self, batch: MaskedBatch, losses: torch.Tensor) -> None:
        """Report the model's `losses` `[n_masked]`, in nats, to the segmenter: the only feedback
        from model to data."""
        self.segmenter.observe(batch.offsets, losses)

    def _uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator, device=self.generator.device)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the masks still to come."""
        return {"generator": self.generator.get_state(), "segmenter": self.segmenter.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])
        self.segmenter.load_state_dict(state["segmenter"])


def n_masked_in(seq_len: int, masking_prob: float) -> int:
    """The number of masked positions per window; at least one, or there would be nothing to learn."""
    return max(1, round(masking_prob * seq_len))
