"""Optimizers on trial, as code of the user: python trial.py training.optimizer=benchmarks/candidates.py:by_head"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from configs.training import adamw_of, layers_of
from training.muon import Muon, orthogonal
from training.optimizers import local

SOAP_BETA = 0.9  # of the covariances and the squares
SOAP_EVERY = 5  # steps between new eigenvectors


class SplitMuon(Muon):
    """Muon that makes parts of a matrix orthogonal, each by itself: the projections or the heads of
    a fused matrix. The norm of an update does not depend on the number of its parts."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        rows: dict[torch.Size, int],
        columns: dict[torch.Size, int],
        **settings: Any,
    ):
        """`rows` and `columns` have the number of parts of the matrices of a shape."""
        super().__init__(matrices, **settings)
        self.rows = rows
        self.columns = columns

    def update(self, matrices: list[torch.Tensor], group: dict[str, Any]) -> None:
        shape = matrices[0].shape
        is_transposed = shape in self.columns
        n_parts = (self.columns if is_transposed else self.rows).get(shape, 1)
        whole = self.directions(matrices, group["momentum"])
        if is_transposed:
            whole = whole.mT
        parts = whole.unflatten(1, (n_parts, -1)).flatten(0, 1)
        rows, columns = parts.shape[1:]
        rank = min(rows * n_parts, columns)
        rank_of_parts = n_parts * min(rows, columns)
        updates = orthogonal(parts).unflatten(0, (-1, n_parts)).flatten(1, 2)
        updates = updates.float() * (rank / rank_of_parts) ** 0.5
        self.apply(matrices, updates.mT if is_transposed else updates, group)


class SoapMuon(Muon):
    """SOAP's direction (Vyas et al. 2024: Adam in the eigenbasis of Shampoo's covariances), made
    orthogonal as Muon's. Its state is not saved."""

    def __init__(self, matrices: Iterable[nn.Parameter], **settings: Any):
        super().__init__(matrices, **settings)
        self.of_shape: dict[torch.Size, Covariances] = {}

    def update(self, matrices: list[torch.Tensor], group: dict[str, Any]) -> None:
        gradients = torch.stack([local(matrix.grad) for matrix in matrices])
        directions = self.directions(matrices, group["momentum"])
        known = self.of_shape.setdefault(matrices[0].shape, Covariances(gradients))
        self.apply(matrices, orthogonal(known(gradients, directions)), group)


class Covariances:
    """Covariances of the rows and columns of matrices `[n, rows, columns]` of one shape, their
    eigenvectors, and the mean squares of gradients in this basis."""

    def __init__(self, gradients: torch.Tensor):
        n, rows, columns = gradients.shape
        self.rows = gradients.new_zeros(n, rows, rows)
        self.columns = gradients.new_zeros(n, columns, columns)
        self.left = torch.eye(rows).expand(n, -1, -1)
        self.right = torch.eye(columns).expand(n, -1, -1)
        self.squares = torch.zeros_like(gradients)
        self.n_steps = 0

    def __call__(
        self, gradients: torch.Tensor, directions: torch.Tensor
    ) -> torch.Tensor:
        self.rows.lerp_(gradients @ gradients.mT, 1 - SOAP_BETA)
        self.columns.lerp_(gradients.mT @ gradients, 1 - SOAP_BETA)
        if self.n_steps == 0:
            self.left = torch.linalg.eigh(self.rows)[1]
            self.right = torch.linalg.eigh(self.columns)[1]
        elif self.n_steps % SOAP_EVERY == 0:  # one step of the power iteration
            self.left = torch.linalg.qr(self.rows @ self.left)[0]
            self.right = torch.linalg.qr(self.columns @ self.right)[0]
        self.n_steps += 1
        rotated = self.left.mT @ gradients @ self.right
        self.squares.lerp_(rotated.square(), 1 - SOAP_BETA)
        correction = 1 - SOAP_BETA**self.n_steps
        scale = (self.squares / correction).sqrt() + 1e-8 * gradients.norm() + 1e-12
        return (
            self.left @ (self.left.mT @ directions @ self.right / scale) @ self.right.mT
        )


def split(c: Any, rows: dict[str, int], columns: dict[str, int]) -> list[Any]:
    layers = layers_of(c.network, "candidates.py", "training.optimizer=adamw")
    named = dict(layers.named_parameters())

    def shapes(parts: dict[str, int]) -> dict[torch.Size, int]:
        return {named[f"0.{name}.weight"].shape: n for name, n in parts.items()}

    return with_adamw(c, SplitMuon, rows=shapes(rows), columns=shapes(columns))


def with_adamw(c: Any, kind: type[Muon], **settings: Any) -> list[Any]:
    layers = layers_of(c.network, "candidates.py", "training.optimizer=adamw")
    matrices = [weight for weight in layers.parameters() if weight.ndim == 2]
    by_muon = kind(
        matrices,
        lr=c.muon_learning_rate,
        momentum=c.muon_momentum,
        weight_decay=c.weight_decay,
        **settings,
    )
    by_adamw, *by_row = adamw_of(c, left_out=matrices)
    return [by_adamw, by_muon, *by_row]


def by_projection(c: Any) -> list[Any]:
    """Queries, keys and values, and the two halves of GeGLU's first matrix."""
    rows = {"attention.query_key_value": 3, "feed_forward.input_gate": 2}
    return split(c, rows, {})


def by_head(c: Any) -> list[Any]:
    """As `by_projection`, but each head by itself, also in the output of attention."""
    n_heads = c.root().model.n_heads
    rows = {"attention.query_key_value": 3 * n_heads, "feed_forward.input_gate": 2}
    return split(c, rows, {"attention.output": n_heads})


def heads_of_queries(c: Any) -> list[Any]:
    """Each head of the queries, keys and values by itself, and all else as Muon has it."""
    return split(c, {"attention.query_key_value": 3 * c.root().model.n_heads}, {})


def soap_muon(c: Any) -> list[Any]:
    return with_adamw(c, SoapMuon)


class PowerCooldown:
    """The learning rate falls as (1 - t)^1.2 in place of linearly (modded-nanogpt's PowerCool)."""

    power = 1.2

    def adjust(self, trainer: Any, stage: Any, lr_share: float) -> tuple[Any, float]:
        schedule = trainer.schedule
        progress = trainer.progress()
        if progress <= 1 - schedule.decay:
            return stage, lr_share
        left = ((1 - progress) / schedule.decay) ** self.power
        final = schedule.final_learning_rate
        return stage, final + (1 - final) * left


class TailAverage:
    """The mean of the weights over the last tenth of the training is what the run ends with."""

    share = 0.1

    def __init__(self) -> None:
        self.sums: list[torch.Tensor] = []
        self.n = 0

    @torch.no_grad()
    def stepped(self, trainer: Any, stage: Any) -> None:
        weights = list(trainer.model.parameters())
        progress = trainer.progress()
        if progress < 1 - self.share:
            return
        if not self.sums:
            self.sums = [torch.zeros_like(weight) for weight in weights]
        torch._foreach_add_(self.sums, weights)
        self.n += 1
        if progress >= 1:
            for weight, total in zip(weights, self.sums, strict=True):
                weight.copy_(total / self.n)


class TailBlend(TailAverage):
    """60% of a moving average with a horizon of 6% of the steps, as in record 45 of
    modded-nanogpt's optimizer track; the embedding is left out."""

    def __init__(self) -> None:
        self.average: list[torch.Tensor] = []

    @torch.no_grad()
    def stepped(self, trainer: Any, stage: Any) -> None:
        embedding = trainer.model.encoder.embedding.weight
        weights = [w for w in trainer.model.parameters() if w is not embedding]
        progress = trainer.progress()
        if progress < 0.85:
            return
        if not self.average:
            self.average = [weight.clone() for weight in weights]
        rate = 1 / (0.056 * trainer.step / progress)
        torch._foreach_lerp_(self.average, weights, rate)
        if progress >= 1:
            torch._foreach_lerp_(weights, self.average, 0.6)
