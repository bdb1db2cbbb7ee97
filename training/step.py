"""One training step: draw windows, mask them, forward, backward, clip, optimize."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from data.masking import IndependentMasker, MaskedBatch, Masker
from data.windows import Windows
from training.objective import MaskedLoss, masked_loss, n_labels
from training.schedule import Stage


class StepSums(NamedTuple):
    """Totals of a step for the training metrics. They stay on the device: reading them would synchronize."""

    loss_sum: torch.Tensor  # nats, over all labels
    n_correct: torch.Tensor
    n_labels: torch.Tensor
    n_positions: torch.Tensor  # selected positions; those without a label are ignored
    grad_norm: torch.Tensor
    pair_loss_sum: torch.Tensor  # nats, over all pairs
    n_pairs_correct: torch.Tensor
    n_pairs: torch.Tensor

    @classmethod
    def zeros(cls, device: torch.device) -> "StepSums":
        """All zero. Counts are integers, because float32 cannot count beyond 16,777,216."""
        floats = {"loss_sum", "grad_norm", "pair_loss_sum"}
        dtypes = (torch.float32 if name in floats else torch.int64 for name in cls._fields)
        return cls(*(torch.zeros((), device=device, dtype=dtype) for dtype in dtypes))


class TrainingStep:
    """Draws windows and updates the weights with them.

    A step whose loss or gradients are not finite changes no weight and adds nothing to the sums; `skipped_in_a_row`
    counts such steps on the device. `training.compilation` replaces `loss_function` by a compiled one and `run_update`
    by a recorded one.
    """

    def __init__(
        self,
        model: nn.Module,
        windows: Windows,
        masker: Masker | IndependentMasker,
        optimizers: Sequence[Optimizer],
        *,
        chars_per_step: int,
        grad_accum_steps: int = 1,
        grad_norm_clip: float = 1.0,
        autocast: bool = False,
    ):
        """`grad_accum_steps` splits the `chars_per_step` characters of a step into batches of equal size; `autocast`
        computes in bfloat16 where that is safe."""
        self.model = model
        self.windows = windows
        self.masker = masker
        self.optimizers = list(optimizers)
        self.chars_per_step = chars_per_step
        self.grad_accum_steps = grad_accum_steps
        self.grad_norm_clip = grad_norm_clip
        self.autocast = autocast
        self.device = next(model.parameters()).device
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=self.device)
        self.reading_synchronizes = self.device.type != "cpu"
        self.loss_function = masked_loss
        self.run_update = self.update

    def __call__(self, stage: Stage, progress: float = 0.0) -> StepSums:
        batches = self.draw(stage, progress)
        sums, losses = self.run_update(batches)
        for batch, batch_losses in zip(batches, losses, strict=True):
            self.masker.observe(batch, batch_losses)
        return sums

    def draw(self, stage: Stage, progress: float = 0.0) -> list[MaskedBatch]:
        """The masked batches of one step, `grad_accum_steps` of them."""
        batch_size = self.chars_per_step // (stage.seq_len * self.grad_accum_steps)
        batches = []
        for _ in range(self.grad_accum_steps):
            windows = self.windows.draw(batch_size, stage.seq_len)
            batch = self.masker(windows.tokens, windows.offsets, stage.masking_prob, progress)
            batches.append(batch._replace(pairs=windows.pairs))
        return batches

    def update(self, batches: Sequence[MaskedBatch]) -> tuple[StepSums, list[torch.Tensor]]:
        """Update the weights; returns the sums, and the losses `[n_masked]` of each batch in nats.

        Reads nothing back from the device if `reading_synchronizes`, and changes all state in place: a CUDA graph can
        record it.
        """
        # Every label has the same weight, whichever batch it is in: losses are divided by the count over all batches.
        count = torch.stack([n_labels(batch) for batch in batches]).sum()
        losses = [self.backward(batch, count) for batch in batches]
        grad_norm = self._clip()
        is_finite = grad_norm.isfinite() & torch.stack([loss.loss_sum for loss in losses]).isfinite().all()
        self._optimize_if(is_finite)
        self.model.zero_grad()
        self.skipped_in_a_row.copy_(torch.where(is_finite, 0, self.skipped_in_a_row + 1))
        sums = StepSums(
            n_labels=count,
            n_positions=torch.full_like(count, sum(len(batch.positions) for batch in batches)),
            grad_norm=grad_norm,
            n_pairs=torch.full_like(count, sum(len(batch.inputs) for batch in batches if batch.pairs is not None)),
            **{
                name: torch.stack([getattr(loss, name) for loss in losses]).sum()
                for name in ("loss_sum", "n_correct", "pair_loss_sum", "n_pairs_correct")
            },
        )
        counted = StepSums(*(torch.where(is_finite, value, torch.zeros_like(value)) for value in sums))
        return counted, [loss.losses.nan_to_num(0.0, 0.0, 0.0) for loss in losses]

    def backward(self, batch: MaskedBatch, count: torch.Tensor) -> MaskedLoss:
        """Add the gradients of a batch's loss, divided by `count`, the number of labels of the whole step."""
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self.loss_function(self.model, batch)
        mean = loss.loss_sum / count.clamp(min=1)
        if batch.pairs is not None:
            mean = mean + loss.pair_loss_sum / (len(batch.inputs) * self.grad_accum_steps)
        mean.backward()
        return MaskedLoss(*(value.detach() for value in loss))

    @torch.no_grad()
    def _clip(self) -> torch.Tensor:
        """Scale the gradients down to a norm of at most `grad_norm_clip`; returns their norm before that."""
        gradients = []
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                if parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.coalesce()  # one sum per row
                gradients.append(parameter.grad.values() if parameter.grad.is_sparse else parameter.grad)
        norm = nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(gradients, (self.grad_norm_clip / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def _optimize_if(self, is_finite: torch.Tensor) -> None:
        if not self.reading_synchronizes:
            if is_finite:
                self._optimize()
            return
        # Reading `is_finite` would synchronize, so the update always runs, with gradients of 0 if it was not finite,
        # and is then undone.
        parameters = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
        before = torch._foreach_mul([parameter.detach() for parameter in parameters], 1.0)
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad = torch.where(is_finite, parameter.grad, 0.0)
        self._optimize()
        with torch.no_grad():
            for parameter, old in zip(parameters, before, strict=True):
                parameter.copy_(torch.where(is_finite, parameter, old))

    def _optimize(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    @contextmanager
    def without_side_effects(self) -> Iterator[None]:
        """Restores the RNG states and clears the gradients on exit. Weights and optimizer states are not restored."""
        windows, masker = self.windows.state_dict(), self.masker.state_dict()
        try:
            with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
                yield
        finally:
            self.windows.load_state_dict(windows)
            self.masker.load_state_dict(masker)
            self.model.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Everything except the weights that decides the steps to come."""
        rng_states = {"cpu": torch.get_rng_state()}  # of PyTorch's own generators, which dropout uses
        if self.device.type == "cuda":
            rng_states["cuda"] = torch.cuda.get_rng_state(self.device)
        return {
            "rng_states": rng_states,
            "skipped_in_a_row": self.skipped_in_a_row,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "windows": self.windows.state_dict(),
            "masker": self.masker.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped_in_a_row.copy_(state["skipped_in_a_row"])
        for optimizer, optimizer_state in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
            for parameter, values in optimizer.state.items():
                shapes = {value.shape for value in values.values() if isinstance(value, torch.Tensor)}
                # PyTorch checks no shapes, and could crash later.
                if not shapes <= {parameter.shape, parameter.shape[:1], torch.Size()}:
                    raise ValueError("an optimizer's state does not have the shape of its parameter")
        self.windows.load_state_dict(state["windows"])
        self.masker.load_state_dict(state["masker"])
        torch.set_rng_state(state["rng_states"]["cpu"])
        if self.device.type == "cuda" and "cuda" in state["rng_states"]:
            torch.cuda.set_rng_state(state["rng_states"]["cuda"], self.device)
