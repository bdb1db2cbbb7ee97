"""The training loss of a large vocabulary, whose logits would not fit into memory."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from data.batch import Batch
from training.objective import Loss, MaskedObjective, Outcome, masks_of

# With their softmax and its gradient, so many float32 take 1 GB.
LOGITS_AT_ONCE = 2**26


class ChunkedObjective(MaskedObjective):
    """Computes head and loss for `n_at_once` positions at a time. Backward computes their logits
    again, so memory does not grow with the number of positions."""

    def __init__(self, loss: Loss, n_at_once: int):
        super().__init__(loss)
        self.n_at_once = n_at_once

    def outcome(self, model: nn.Module, batch: Batch) -> Outcome:
        def scored(
            x: torch.Tensor, labels: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return self.scored(model.predict(x), labels)  # type: ignore[operator]

        def in_chunks(x: torch.Tensor) -> Outcome:
            all_losses = []
            n_correct = batch.labels.new_zeros(())
            vectors = x.flatten(0, -2).split(self.n_at_once)
            labels = batch.labels.flatten().split(self.n_at_once)
            for chunk in zip(vectors, labels, strict=True):
                # heads draw no random numbers
                losses, n = checkpoint(
                    scored, *chunk, use_reentrant=False, preserve_rng_state=False
                )
                all_losses.append(losses)
                n_correct += n
            joined = torch.cat(all_losses)
            sums = {"loss_sum": joined.sum(), "n_correct": n_correct}
            return Outcome(joined.view_as(batch.labels), sums)

        masks = masks_of(batch)
        return model(batch.inputs, batch.positions, **masks, read=in_chunks)
