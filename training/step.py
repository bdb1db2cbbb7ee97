"""One training step: draw windows, mask them, forward, backward, clip, optimize."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from data.masking import IndependentMasker, MaskedBatch, Masker
from data.prefetch import Prefetched
from data.windows import Windows
from distributed.processes import SINGLE, Processes
from distributed.sharding import is_sharded, local, whole
from training.objective import MaskedLoss, StepSums, masked_loss, n_labels
from training.optimizers import load_optimizers
from training.parallel import LossModule, parallel, without_averaging
from training.schedule import Stage

SUMMED = ("loss_sum", "n_correct", "pair_loss_sum", "n_pairs_correct")  # over batches and processes


class TrainingStep:
    """Draws windows and updates the weights with them.

    A step whose loss or gradients are not finite changes no weight and adds nothing to the sums; `skipped_in_a_row`
    counts such steps on the device. `training.compilation` replaces `loss_function` by a compiled one and `run_update`
    by a recorded one.
    """

    def __init__(
        self,
        model: nn.Module,
        windows: Windows | Prefetched,
        masker: Masker | IndependentMasker,
        optimizers: Sequence[Optimizer],
        *,
        chars_per_step: int,
        grad_accum_steps: int = 1,
        grad_norm_clip: float = 1.0,
        autocast: bool = False,
        processes: Processes = SINGLE,
    ):
        """`grad_accum_steps` splits the `chars_per_step` characters of a step into batches of equal size; `autocast`
        computes in bfloat16 where that is safe."""
        self.model = model
        self.windows = windows
        self.masker = masker
        self.optimizers = list(optimizers)
        self.chars_per_step, self.grad_accum_steps = chars_per_step, grad_accum_steps
        self.grad_norm_clip = grad_norm_clip
        self.autocast = autocast
        self.processes = processes
        self.device = next(model.parameters()).device
        self.reading_synchronizes = self.device.type != "cpu"
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=self.device)
        self.loss_function, self.run_update = masked_loss, self.update
        self.parallel = parallel(LossModule(model, lambda: self.loss_function), processes)

    def __call__(self, stage: Stage, progress: float = 0.0) -> StepSums:
        batches = self.draw(stage, progress)
        sums, losses = self.run_update(batches)
        if self.masker.learns:
            for batch, batch_losses in zip(batches, losses, strict=True):
                self.masker.observe(batch, batch_losses)
            for learned in tree_leaves(self.masker.state_dict()["segmenter"]):
                self.processes.copy_first(learned)  # sums on a GPU depend on their order
        return sums

    def draw(self, stage: Stage, progress: float = 0.0) -> list[MaskedBatch]:
        """The masked batches of one step, `grad_accum_steps` of them; all processes draw the same ones."""
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
        losses = [self.backward(batch, count, averaged=batch is batches[-1]) for batch in batches]
        sums_here = {name: torch.stack([getattr(loss, name) for loss in losses]).sum() for name in SUMMED}
        totals = self.processes.sums(sums_here)
        loss = totals.pop("loss_sum") / count.clamp(min=1)
        grad_norm = self._clip()
        is_finite = grad_norm.isfinite() & loss.isfinite()
        self._optimize_if(is_finite)
        self.model.zero_grad()
        self.skipped_in_a_row.copy_(torch.where(is_finite, 0, self.skipped_in_a_row + 1))
        sums = StepSums(
            loss=loss,
            n_labels=count,
            n_positions=torch.full_like(count, sum(len(batch.positions) for batch in batches)),
            grad_norm=grad_norm,
            n_pairs=torch.full_like(count, sum(len(batch.inputs) for batch in batches if batch.pairs is not None)),
            n_steps=(count > 0).long(),
            **totals,
        )
        counted = StepSums(*(torch.where(is_finite, value, torch.zeros_like(value)) for value in sums))
        observed = [loss.losses.nan_to_num(0.0, 0.0, 0.0) for loss in losses]
        if self.masker.learns:  # from the losses of all processes; every batch has as many
            observed = [self.processes.join(part, len(batches[0].positions)) for part in observed]
        return counted, observed

    def backward(self, batch: MaskedBatch, count: torch.Tensor, averaged: bool = False) -> MaskedLoss:
        """Add the gradients of a batch's loss, divided by `count`, the number of labels of the whole step.

        Each process computes those of its share of the windows; `averaged` adds up the gradients of all processes.
        """
        mine = batch.part(self.processes.share(len(batch.inputs)))
        with nullcontext() if averaged else without_averaging(self.parallel):
            with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=self.autocast):
                loss = self.parallel(mine)
            mean = loss.loss_sum / count.clamp(min=1)
            if mine.pairs is not None:
                mean = mean + loss.pair_loss_sum / (len(batch.inputs) * self.grad_accum_steps)
            (mean * self.processes.n).backward()  # the average over processes is then their sum
        return MaskedLoss(*(value.detach() for value in loss))

    @torch.no_grad()
    def _clip(self) -> torch.Tensor:
        """Scale the gradients down to a norm of at most `grad_norm_clip`; returns their norm before that."""
        gradients = []
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                if parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.coalesce()  # one sum per row
                gradients.append(parameter.grad.values() if parameter.grad.is_sparse else local(parameter.grad))
        norm = nn.utils.get_total_norm(gradients)
        if is_sharded(next(self.model.parameters())):
            norm = self.processes.sum(norm.square()).sqrt()
        torch._foreach_mul_(gradients, (self.grad_norm_clip / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def _optimize_if(self, is_finite: torch.Tensor) -> None:
        if not self.reading_synchronizes:
            if is_finite:
                self._optimize()
            return
        # Reading `is_finite` would synchronize: the update always runs, and is undone if it was not finite.
        updated = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
        with torch.no_grad():
            parameters = [local(parameter) for parameter in updated]
            before = torch._foreach_mul(parameters, 1.0)
            for gradient in (local(parameter.grad) for parameter in updated if parameter.grad is not None):
                gradient.copy_(torch.where(is_finite, gradient, 0.0))
            self._optimize()
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
        rng_states = {"cpu": torch.get_rng_state()}  # of PyTorch's own generators, which dropout uses: its draws differ
        if self.device.type == "cuda":
            rng_states["cuda"] = torch.cuda.get_rng_state(self.device)
        return {
            "rng_states": self.processes.of_all(rng_states),
            "skipped_in_a_row": self.skipped_in_a_row,
            "optimizers": whole([optimizer.state_dict() for optimizer in self.optimizers], self.processes.is_first),
            "windows": self.windows.state_dict(),
            "masker": self.masker.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped_in_a_row.copy_(state["skipped_in_a_row"])
        load_optimizers(self.optimizers, state["optimizers"])
        self.windows.load_state_dict(state["windows"])
        self.masker.load_state_dict(state["masker"])
        of_all = saved if isinstance(saved := state["rng_states"], list) else [saved]  # earlier: of one process
        rank, n = self.processes.rank, len(of_all)
        rng_states = of_all[rank % n]
        torch.set_rng_state(rng_states["cpu"])
        if rank >= n:  # a seed from the next draw of a process that was saved, so it depends on the run and the step
            torch.manual_seed(int(torch.randint(2**62, ())) + rank)
        elif self.device.type == "cuda" and "cuda" in rng_states:
            torch.cuda.set_rng_state(rng_states["cuda"], self.device)
