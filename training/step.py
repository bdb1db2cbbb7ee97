"""One training step, compiled where a compiler is there, the same on every device."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from data.masking import MaskedBatch
from data.windows import WindowBatch
from training.objective import MaskedLoss, masked_loss, n_labels
from training.stages import Stage


class WindowSource(Protocol):
    """What draws windows: see `data.windows` and `data.pairs`."""

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch: ...
    def state_dict(self) -> dict: ...
    def load_state_dict(self, state: dict) -> None: ...


class BatchMasker(Protocol):
    """What draws masks: see `data.masking`."""

    def __call__(
        self, tokens: torch.Tensor, places: torch.Tensor, masking_prob: float, progress: float
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
    n_pairs: torch.Tensor | int

    @classmethod
    def zeros(cls, device: torch.device) -> "StepSums":
        """Nothing yet. Counts are integers: a float32 stops counting at 16,777,216."""
        loss_sum, grad_norm, pair_loss_sum = torch.zeros(3, device=device)
        n_correct, n_labels, n_pairs_correct, n_pairs = torch.zeros(4, device=device, dtype=torch.int64)
        return cls(loss_sum, n_correct, n_labels, grad_norm, pair_loss_sum, n_pairs_correct, n_pairs)


class TrainingStep:
    """Windows in, weights changed: draw, mask, forward, backward, clip, optimize."""

    def __init__(
        self,
        model: nn.Module,
        windows: WindowSource,
        masker: BatchMasker,
        optimizers: Sequence[Optimizer],
        *,
        chars_per_step: int,
        accumulation: int = 1,
        grad_norm_clip: float = 1.0,
        autocast: bool = False,
    ):
        """`accumulation` splits the `chars_per_step` characters of a step into batches of equal size;
        `autocast` computes in bfloat16 where that is safe."""
        self.model = model
        self.windows = windows
        self.masker = masker
        self.optimizers = list(optimizers)
        self.chars_per_step = chars_per_step
        self.accumulation = accumulation
        self.grad_norm_clip = grad_norm_clip
        self.autocast = autocast
        self._loss: Callable[[nn.Module, MaskedBatch], MaskedLoss] = masked_loss
        self._compiled: set[tuple[int, float]] = set()  # lengths and masking rates; none where nothing is compiled

    def __call__(self, stage: Stage, progress: float = 0.0) -> StepSums:
        batches = [self._draw(stage, progress) for _ in range(self.accumulation)]
        # Every label weighs the same, in whichever batch it is: the sums are divided by the count over all.
        count = torch.stack([n_labels(batch) for batch in batches]).sum()
        losses = [self._backward(batch, count) for batch in batches]
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_norm_clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self._clear_gradients()
        for batch, loss in zip(batches, losses, strict=True):
            self.masker.observe(batch, loss.losses)
        sums = {
            name: torch.stack([getattr(loss, name) for loss in losses]).sum()
            for name in ("loss_sum", "n_correct", "pair_loss_sum", "n_pairs_correct")
        }
        n_pairs = sum(len(batch.inputs) for batch in batches if batch.pairs is not None)
        return StepSums(n_labels=count, grad_norm=grad_norm, n_pairs=n_pairs, **sums)

    def compile(self, stages: Sequence[Stage]) -> None:
        """Compile for the shapes of every stage. Raises what torch.compile raises where it cannot work.

        The weights, the random draws still to come and the optimizers are the same afterwards.
        """
        shapes = {_shape(stage): stage for stage in stages}
        # One recompilation a shape is meant, not a sign of trouble.
        n_shapes = len(self._compiled | set(shapes))
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 2 * n_shapes)
        self._loss = torch.compile(masked_loss, dynamic=False)
        state = self.windows.state_dict(), self.masker.state_dict()
        try:
            with torch.random.fork_rng():  # dropout draws from PyTorch's own generators
                for stage in shapes.values():
                    batch = self._draw(stage)
                    self._backward(batch, n_labels(batch))
            self._compiled |= set(shapes)
        except Exception:
            self._loss, self._compiled = masked_loss, set()
            raise
        finally:
            self.windows.load_state_dict(state[0])
            self.masker.load_state_dict(state[1])
            self._clear_gradients()

    def is_ready_for(self, stage: Stage) -> bool:
        """Whether a step of this shape takes no compilation: it was compiled, or nothing is."""
        return not self._compiled or _shape(stage) in self._compiled

    def _draw(self, stage: Stage, progress: float = 0.0) -> MaskedBatch:
        windows = self.windows.draw(self.chars_per_step // (stage.seq_len * self.accumulation), stage.seq_len)
        batch = self.masker(windows.tokens, windows.places, stage.masking_prob, progress)
        return batch._replace(pairs=windows.pairs)

    def _backward(self, batch: MaskedBatch, count: torch.Tensor) -> MaskedLoss:
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self._loss(self.model, batch)
        mean = loss.loss_sum / count.clamp(min=1)
        if batch.pairs is not None:
            mean = mean + loss.pair_loss_sum / (len(batch.inputs) * self.accumulation)
        mean.backward()
        return MaskedLoss(*(value.detach() for value in loss))

    def _clear_gradients(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None


def _shape(stage: Stage) -> tuple[int, float]:
    return stage.seq_len, stage.masking_prob
