"""One training step: draw batches, forward, backward, clip, optimize."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from data.batch import Batch
from data.batch_contract import BatchSource
from data.generators import restore_rng_states
from training.objective import Losses, MaskedObjective, Outcome, Sums
from training.optimizers import gradients_of
from training.schedule import Stage
from training.undo import optimize_or_undo


class TrainingStep:
    """Draws batches from a source, and updates the weights. Sources that learn from the losses have
    a subclass, `LearningStep`."""

    def __init__(
        self,
        source: BatchSource,
        update: "Update",
        *,
        chars_per_step: int,  # tokens, which are characters by default
        grad_accum_steps: int = 1,  # batches per step
    ):
        self.source = source
        self.update = update
        # `update` itself, or CUDA graphs that replay it
        self.run_update: Callable[..., tuple[Sums, Losses]] = update
        self.chars_per_step = chars_per_step
        self.grad_accum_steps = grad_accum_steps

    def __call__(self, stage: Stage, progress: float = 0.0) -> Sums:
        """Take one step, and return the sums of its update. Some maskers depend on `progress`, the
        share of the training budget that is spent."""
        batches = self.draw(stage, progress)
        sums, _ = self.run_update(batches)
        return sums

    def draw(self, stage: Stage, progress: float = 0.0) -> list[Batch]:
        """The `grad_accum_steps` batches of one step, on the model's device."""
        # without a remainder: configs/checks.py
        batch_size = self.chars_per_step // (stage.seq_len * self.grad_accum_steps)
        batches = []
        for _ in range(self.grad_accum_steps):
            batch = self.source.draw(
                batch_size, stage.seq_len, stage.masking_prob, progress
            )
            batches.append(batch.to(self.update.device))
        return batches

    def state_dict(self) -> dict[str, Any]:
        """All state that later steps depend on, except the weights."""
        return self.update.state_dict() | {"source": self.source.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.update.load_state_dict(state)
        self.source.load_state_dict(state["source"])


class Update:
    """The update of the weights in one step: forward and backward for each batch, clip, optimize.
    `distributed.parallel` overrides parts for several processes.

    A step whose loss or gradients are not finite changes no weight and adds nothing to the sums.
    On a GPU no value is read, because reading waits for all of its work. All state changes in
    place, so a CUDA graph can record an update.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        objective: MaskedObjective,
        optimizers: Sequence[torch.optim.Optimizer],
        grad_norm_clip: float = 1.0,
        autocast: bool = False,  # whether to compute in bfloat16 where that is safe
    ):
        self.model = model
        self.objective = objective
        self.optimizers = list(optimizers)
        self.grad_norm_clip = grad_norm_clip
        self.autocast = autocast
        self.device = next(model.parameters()).device
        # reading a value waits for all work of the device
        self.reading_synchronizes = self.device.type != "cpu"
        # the number of steps since the last finite one
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=self.device)

    def __call__(self, batches: Sequence[Batch]) -> tuple[Sums, Losses]:
        """Update the weights; returns sums for the training metrics, and the losses at the positions
        of each batch, for a source that learns from them."""
        # the numbers of labels and positions in the whole step, for the means over all batches
        counts = self.objective.counts(batches)
        outcomes = []
        for batch in batches:
            is_last = batch is batches[-1]
            outcomes.append(self.forward_backward(batch, counts, is_last))

        sums = self.summed([outcome.sums for outcome in outcomes])
        loss = sums.pop("loss_sum") / counts["n_labels"].clamp(min=1)  # per label
        grad_norm = self.clip()

        is_finite = grad_norm.isfinite() & loss.isfinite()
        self.optimize_if(is_finite)
        self.model.zero_grad()
        # add one, then multiply by 0 if the step was finite
        self.skipped_in_a_row.add_(1).mul_(~is_finite)

        # 0 for a step without labels, which the means over steps leave out
        n_steps = (counts["n_labels"] > 0).long()
        sums |= {"loss": loss, "grad_norm": grad_norm, "n_steps": n_steps, **counts}
        for name, value in sums.items():
            sums[name] = torch.where(is_finite, value, 0)
        return sums, [outcome.losses for outcome in outcomes]

    def forward_backward(
        self, batch: Batch, counts: Sums, is_last: bool = False
    ) -> Outcome:
        """Add the gradients of a batch; returns its losses and their sum, without the graph of
        gradients. Several processes exchange gradients after the last batch (`is_last`)."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            # model(inputs, positions) returns logits; then the cross-entropy at the labels
            outcome = self.objective.outcome(self.model, batch)
        # the sum of this batch's losses / the number of labels in the step
        loss = self.objective.normalized(outcome.sums, counts)
        loss.backward()
        return outcome.detached()

    def summed(self, sums: Sequence[Sums]) -> Sums:
        """The sums over all batches of a step, from those of each."""
        totals = {}
        for name in sums[0]:
            totals[name] = torch.stack([each[name] for each in sums]).sum()
        return totals

    def clip(self) -> torch.Tensor:
        """Scale the gradients down to a norm of at most `grad_norm_clip`; returns their norm before
        that."""
        gradients = gradients_of(self.model)
        norm = self.total_norm(gradients)
        torch._foreach_mul_(
            gradients, (self.grad_norm_clip / (norm + 1e-6)).clamp(max=1.0)
        )
        return norm

    def total_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.utils.get_total_norm(gradients)

    def optimize_if(self, is_finite: torch.Tensor) -> None:
        """Change the weights, unless the step is not finite."""
        if self.reading_synchronizes:
            # runs the optimizers anyway, and undoes their changes on the device
            optimize_or_undo(self.optimizers, is_finite)
        elif is_finite:
            for optimizer in self.optimizers:
                optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {
            "rng_states": [rng_states(self.device)],  # one per process
            "skipped_in_a_row": self.skipped_in_a_row,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped_in_a_row.copy_(state["skipped_in_a_row"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        restore_rng_states(state["rng_states"][0], self.device)


def rng_states(device: torch.device) -> dict[str, torch.Tensor]:
    """The states of PyTorch's own generators, which dropout uses, for the CPU and for `device`."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states
