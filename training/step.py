"""One training step, compiled where a compiler is there, the same on every device."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from data.masking import MaskedBatch
from data.windows import WindowBatch
from training.graph import GraphedUpdate, can_be_recorded
from training.objective import MaskedLoss, masked_loss, n_labels
from training.schedule import Stage


class WindowSource(Protocol):
    """What draws windows: see `data.windows` and `data.pairs`."""

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch: ...
    def state_dict(self) -> dict: ...
    def load_state_dict(self, state: dict) -> None: ...


class BatchMasker(Protocol):
    """What draws masks: see `data.masking`."""

    def __call__(
        self, tokens: torch.Tensor, offsets: torch.Tensor, masking_prob: float, progress: float
    ) -> MaskedBatch: ...
    def observe(self, batch: MaskedBatch, losses: torch.Tensor) -> None: ...
    def state_dict(self) -> dict: ...
    def load_state_dict(self, state: dict) -> None: ...


class StepSums(NamedTuple):
    """What a step adds to the training metrics, still on the device: reading it would wait for the device."""

    loss_sum: torch.Tensor
    n_correct: torch.Tensor
    n_labels: torch.Tensor
    grad_norm: torch.Tensor
    pair_loss_sum: torch.Tensor
    n_pairs_correct: torch.Tensor
    n_pairs: torch.Tensor

    @classmethod
    def zeros(cls, device: torch.device) -> "StepSums":
        """Nothing yet. Counts are integers: a float32 stops counting at 16,777,216."""
        loss_sum, grad_norm, pair_loss_sum = torch.zeros(3, device=device)
        n_correct, n_labels, n_pairs_correct, n_pairs = torch.zeros(4, device=device, dtype=torch.int64)
        return cls(loss_sum, n_correct, n_labels, grad_norm, pair_loss_sum, n_pairs_correct, n_pairs)


class TrainingStep:
    """Windows in, weights changed: draw, mask, forward, backward, clip, optimize.

    A step whose loss or gradients are not finite changes no weight and counts in no sum; `skipped_in_a_row` says how
    many there were, on the device.
    """

    def __init__(
        self,
        model: nn.Module,
        windows: WindowSource,
        masker: BatchMasker,
        optimizers: Sequence[Optimizer],
        *,
        chars_per_step: int,
        grad_accum_steps: int = 1,
        grad_norm_clip: float = 1.0,
        autocast: bool = False,
    ):
        """`grad_accum_steps` splits the `chars_per_step` characters of a step into batches of equal size;
        `autocast` computes in bfloat16 where that is safe."""
        self.model = model
        self.windows = windows
        self.masker = masker
        self.optimizers = list(optimizers)
        self.chars_per_step = chars_per_step
        self.grad_accum_steps = grad_accum_steps
        self.grad_norm_clip = grad_norm_clip
        self.autocast = autocast
        device = next(model.parameters()).device
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self.reading_waits = device.type != "cpu"  # for the work that is queued on the device
        self._loss: Callable[[nn.Module, MaskedBatch], MaskedLoss] = masked_loss
        self._compiled: set[tuple[int, float]] = set()  # lengths and masking rates; none where nothing is compiled
        self._graphed: GraphedUpdate[tuple[StepSums, list[torch.Tensor]]] | None = None

    def __call__(self, stage: Stage, progress: float = 0.0) -> StepSums:
        batches = [self._draw(stage, progress) for _ in range(self.grad_accum_steps)]
        update = self._update if self._graphed is None else self._graphed
        sums, losses = update(batches)
        for batch, its_losses in zip(batches, losses, strict=True):
            self.masker.observe(batch, its_losses)
        return sums

    def _update(self, batches: Sequence[MaskedBatch]) -> tuple[StepSums, list[torch.Tensor]]:
        """Change the weights by what is learnt from the batches; also the losses `[n_masked]` of each, in nats."""
        # Every label weighs the same, in whichever batch it is: the sums are divided by the count over all.
        count = torch.stack([n_labels(batch) for batch in batches]).sum()
        losses = [self._backward(batch, count) for batch in batches]
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_norm_clip)
        is_finite = grad_norm.isfinite() & torch.stack([loss.loss_sum for loss in losses]).isfinite().all()
        self._change_weights(is_finite)
        self._clear_gradients()
        sums = {
            name: torch.stack([getattr(loss, name) for loss in losses]).sum()
            for name in ("loss_sum", "n_correct", "pair_loss_sum", "n_pairs_correct")
        }
        n_pairs = sum(len(batch.inputs) for batch in batches if batch.pairs is not None)
        total = StepSums(n_labels=count, grad_norm=grad_norm, n_pairs=torch.full_like(count, n_pairs), **sums)
        self.skipped_in_a_row.copy_(torch.where(is_finite, 0, self.skipped_in_a_row + 1))
        counted = StepSums(*(torch.where(is_finite, value, torch.zeros_like(value)) for value in total))
        return counted, [loss.losses.nan_to_num(0.0, 0.0, 0.0) for loss in losses]

    def _change_weights(self, is_finite: torch.Tensor) -> None:
        if not self.reading_waits:
            if is_finite:
                self._optimize()
            return
        # Reading it would wait: the step is taken anyway, with gradients of 0 where it must not be, and taken back.
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

    def compile(self, stages: Sequence[Stage]) -> None:
        """Compile for the shapes of every stage. Raises what torch.compile raises where it cannot work.

        The weights, the random draws still to come and the optimizers are the same afterwards.
        """
        shapes = {_shape(stage): stage for stage in stages}
        # One recompilation a shape is meant, not a sign of trouble.
        n_shapes = len(self._compiled | set(shapes))
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 2 * n_shapes)
        self._loss = torch.compile(masked_loss, dynamic=False)
        device = self.skipped_in_a_row.device
        try:
            with self._aside():
                for stage in shapes.values():
                    batch = self._draw(stage)
                    self._backward(batch, n_labels(batch))
        except Exception:
            self._loss, self._compiled, self._graphed = masked_loss, set(), None
            raise
        if not self._compiled and device.type == "cuda" and can_be_recorded(self.optimizers):
            self._graphed = GraphedUpdate(self._update, self.optimizers, device)
        self._compiled |= set(shapes)

    def record(self, stage: Stage) -> None:
        """Record a step of this shape as a CUDA graph. Raises what PyTorch raises where that cannot work; steps are
        then taken without.

        The weights, the random draws still to come and the optimizers are the same afterwards.
        """
        assert self._graphed is not None, "there is nothing to record: see is_ready_for"
        try:
            with self._aside():
                self._graphed.record([self._draw(stage) for _ in range(self.grad_accum_steps)])
        except Exception:
            self._graphed = None
            raise

    def is_compiled_for(self, stage: Stage) -> bool:
        """Whether a step of this shape takes no compilation: it was compiled, or nothing is."""
        return not self._compiled or _shape(stage) in self._compiled

    def is_ready_for(self, stage: Stage) -> bool:
        """Whether there is nothing left to compile, or to record, before the next step."""
        return self.is_compiled_for(stage) and (self._graphed is None or not self._graphed.is_due)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """For what is no training: the draws to come are the same afterwards, and gradients are none."""
        device = self.skipped_in_a_row.device
        state = self.windows.state_dict(), self.masker.state_dict()
        try:
            # Dropout draws from PyTorch's own generators.
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                yield
        finally:
            self.windows.load_state_dict(state[0])
            self.masker.load_state_dict(state[1])
            self._clear_gradients()

    def _draw(self, stage: Stage, progress: float = 0.0) -> MaskedBatch:
        windows = self.windows.draw(self.chars_per_step // (stage.seq_len * self.grad_accum_steps), stage.seq_len)
        batch = self.masker(windows.tokens, windows.offsets, stage.masking_prob, progress)
        return batch._replace(pairs=windows.pairs)

    def _backward(self, batch: MaskedBatch, count: torch.Tensor) -> MaskedLoss:
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self._loss(self.model, batch)
        mean = loss.loss_sum / count.clamp(min=1)
        if batch.pairs is not None:
            mean = mean + loss.pair_loss_sum / (len(batch.inputs) * self.grad_accum_steps)
        mean.backward()
        return MaskedLoss(*(value.detach() for value in loss))

    def _clear_gradients(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None


def _shape(stage: Stage) -> tuple[int, float]:
    return stage.seq_len, stage.masking_prob
