"""One training step: draw windows, mask them, forward, backward, clip, optimize."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from data.generators import restore_rng_states, rng_states
from data.masking import MaskedBatch, Masker
from data.windows import Windows
from training.callbacks.health_checks import optimize_or_undo
from training.objective import Losses, MaskedObjective, Outcome, Sums
from training.optimizers import gradients_of
from training.schedule import Stage


class TrainingStep:
    """Draws windows, masks them, and updates the weights. `distributed.parallel` overrides it for
    several processes."""

    def __init__(
        self,
        windows: Windows,
        masker: Masker,
        update: "Update",
        *,
        # by default `update`; or its CUDA graphs
        change_weights: Callable[..., tuple[Sums, Losses]] | None = None,
        chars_per_step: int,  # in fact tokens; by default, each is a character
        grad_accum_steps: int = 1,  # micro-batches per step
    ):
        self.windows, self.masker, self.update, self.change_weights = (
            windows,
            masker,
            update,
            change_weights or update,
        )
        self.chars_per_step, self.grad_accum_steps = chars_per_step, grad_accum_steps

    def __call__(self, stage: Stage, progress: float = 0.0) -> Sums:
        """Take one step at `progress`, the share of the training budget that is spent."""
        batches = self.draw(stage, progress)
        sums, losses = self.change_weights(batches)
        if self.masker.learns:
            for batch, batch_losses in zip(batches, losses, strict=True):
                # what it learns must stay finite
                self.observe(batch, batch_losses.nan_to_num(posinf=0.0, neginf=0.0))
        return sums

    def draw(self, stage: Stage, progress: float = 0.0) -> list[MaskedBatch]:
        """The `grad_accum_steps` masked batches of one step. Only masked positions have labels,
        `[n_masked]`."""
        batch_size = self.chars_per_step // (stage.seq_len * self.grad_accum_steps)
        batches = []
        for _ in range(self.grad_accum_steps):
            # tokens, and where in the training text they are
            drawn = self.windows.draw(batch_size, stage.seq_len)
            batch = self.masker(drawn.tokens, drawn.offsets, stage.masking_prob, progress)
            # segments and labels of pairs; else empty
            batches.append(batch._replace(further=drawn.further))
        return batches

    def observe(self, batch: MaskedBatch, losses: torch.Tensor) -> None:
        """Show the losses to a masker that learns from them."""
        self.masker.observe(batch, losses)

    def state_dict(self) -> dict[str, Any]:
        """All state that later steps depend on, except the weights."""
        return self.update.state_dict() | {
            "windows": self.windows.state_dict(),
            "masker": self.masker.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.update.load_state_dict(state)
        self.windows.load_state_dict(state["windows"])
        self.masker.load_state_dict(state["masker"])


class Update:
    """Updates the weights with masked batches. `distributed.parallel` overrides parts for several
    processes.

    A step that is not finite changes no weight and adds nothing to the sums; `skipped_in_a_row`
    counts such steps. On a GPU no value is read back, and all state changes in place, so that a
    CUDA graph can record an update.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        objective: MaskedObjective,
        optimizers: Sequence[torch.optim.Optimizer],
        grad_norm_clip: float = 1.0,
        autocast: bool = False,  # whether to compute in bfloat16 where that is safe
    ):
        self.model, self.objective, self.optimizers = model, objective, list(optimizers)
        self.grad_norm_clip, self.autocast = grad_norm_clip, autocast
        self.device = next(model.parameters()).device
        # reading a tensor waits for the device
        self.reading_synchronizes = self.device.type != "cpu"
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=self.device)

    def __call__(self, batches: Sequence[MaskedBatch]) -> tuple[Sums, Losses]:
        """Update the weights; returns sums for the training metrics, and the losses of each batch."""
        # of the whole step; each batch's loss is divided by them
        counts = self.objective.counts(batches)
        outcomes = [
            self.forward_backward(batch, counts, is_last=batch is batches[-1]) for batch in batches
        ]
        totals = self.summed([outcome.sums for outcome in outcomes])
        # for the check below and metrics; no gradient
        loss = totals.pop("loss_sum") / counts["n_labels"].clamp(min=1)
        grad_norm = self.clip()
        is_finite = grad_norm.isfinite() & loss.isfinite()
        self.optimize_if(is_finite)
        self.model.zero_grad()
        self.skipped_in_a_row.copy_(torch.where(is_finite, 0, self.skipped_in_a_row + 1))
        n_steps = (counts["n_labels"] > 0).long()  # 0 if nothing was masked
        sums = {"loss": loss, "grad_norm": grad_norm, "n_steps": n_steps, **totals, **counts}
        counted = {
            name: torch.where(is_finite, value, torch.zeros_like(value))
            for name, value in sums.items()
        }
        return counted, [outcome.losses for outcome in outcomes]

    def forward_backward(self, batch: MaskedBatch, counts: Sums, is_last: bool = False) -> Outcome:
        """Add the gradients of a batch; returns its outcome. Several processes exchange gradients
        if `is_last`."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outcome = self.objective.outcome(self.model, batch)
        self.objective.loss(outcome.sums, counts).backward()
        return outcome.detached()

    def summed(self, sums: Sequence[Sums]) -> Sums:
        return {name: torch.stack([each[name] for each in sums]).sum() for name in sums[0]}

    def clip(self) -> torch.Tensor:
        """Scale the gradients down to a norm of at most `grad_norm_clip`; returns their norm before
        that."""
        gradients = gradients_of(self.model)
        norm = self.total_norm(gradients)
        torch._foreach_mul_(gradients, (self.grad_norm_clip / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def total_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.utils.get_total_norm(gradients)

    def optimize_if(self, is_finite: torch.Tensor) -> None:
        """Change the weights, unless the step is not finite."""
        if self.reading_synchronizes:
            optimize_or_undo(self.optimizers, is_finite)  # without knowing `is_finite` here
        elif is_finite:
            for optimizer in self.optimizers:
                optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        state = {"rng_states": [rng_states(self.device)], "skipped_in_a_row": self.skipped_in_a_row}
        return state | {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped_in_a_row.copy_(state["skipped_in_a_row"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        restore_rng_states(state["rng_states"][0], self.device)
