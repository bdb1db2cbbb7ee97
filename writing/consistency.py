"""Joint consistency: do a model's predictions of neighboring characters belong to one distribution?

A masked model predicts each hidden character alone. Filling n of them one after the other
multiplies n conditionals, and the product should not depend on the order: conditionals of one joint
distribution, such as the exact posterior, give its probability along every order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from data.vocabulary import Vocabulary
from training.evaluation import evaluating
from writing.truth import TruePosterior

ORDERS = ("left to right", "right to left", "random")


@dataclass(frozen=True)
class HiddenSpans:
    """Windows with n hidden neighboring positions each, and holes elsewhere."""

    windows: Tensor  # [n_windows, seq_len], the true ids
    inputs: Tensor  # [n_windows, seq_len], with [MASK] in the span and at the holes
    orders: dict[str, Tensor]  # the span's columns in each of ORDERS, [n_windows, n]
    exact: Tensor  # [n_windows], log P(true span | visible characters) in nats


def hidden_spans(
    truth: TruePosterior,
    windows: Tensor,
    mask_token: int,
    *,
    n: int,
    background: float,
    generator: torch.Generator,
) -> HiddenSpans:
    """Hide n neighboring positions of each window `[n_windows, seq_len]`, and each other with
    probability `background`.

    The exact log-probability of the span is that of the window with it minus that of the window
    without it.
    """
    n_windows, seq_len = windows.shape
    columns = torch.randint(
        seq_len - n + 1, (n_windows, 1), generator=generator
    ) + torch.arange(n)
    shuffle = torch.rand(n_windows, n, generator=generator).argsort(1)
    orders = (columns, columns.flip(1), columns.gather(1, shuffle))
    holes = torch.rand(n_windows, seq_len, generator=generator) < background
    with_span = windows.masked_fill(holes.scatter(1, columns, False), mask_token)
    inputs = windows.masked_fill(holes.scatter(1, columns, True), mask_token)
    exact = truth.floor.log_probability(truth.to_floor(with_span))
    exact -= truth.floor.log_probability(truth.to_floor(inputs))

    return HiddenSpans(windows, inputs, dict(zip(ORDERS, orders, strict=True)), exact)


def joint_consistency(
    model: nn.Module,
    spans: HiddenSpans,
    vocabulary: Vocabulary,
    generator: torch.Generator,
) -> dict[str, Any]:
    """How far a model's products of conditionals are from the exact joint, and from each other, in
    nats per span.

    "kl" has for each order the KL divergence from the exact joint to the model's product along it,
    estimated at the true characters, which are a sample of the exact joint. "disagreement" has for
    right to left and random the divergence from the product along left to right, estimated at
    characters that the model writes left to right. Each is {"nats", "stderr"}. "exact" is the
    entropy of the exact joint, estimated likewise. The model must be on the CPU.
    """
    first, *others = ORDERS

    def log_joint(order: str, ids: Tensor) -> Tensor:
        def true(logs: Tensor, column: Tensor) -> Tensor:
            return ids.gather(1, column)

        _, total = _filled(model, spans, order, vocabulary.n_ordinary, true)
        return total

    def draw(logs: Tensor, _: Tensor) -> Tensor:
        return torch.multinomial(logs.exp(), 1, generator=generator)

    with evaluating(model, spans.inputs.device):
        kl = {
            order: _estimate(spans.exact - log_joint(order, spans.windows))
            for order in ORDERS
        }
        written, chosen = _filled(model, spans, first, vocabulary.n_ordinary, draw)
        disagreement = {
            order: _estimate(chosen - log_joint(order, written)) for order in others
        }

    return {"exact": _estimate(-spans.exact), "kl": kl, "disagreement": disagreement}


def _filled(
    model: nn.Module,
    spans: HiddenSpans,
    order: str,
    ordinary: int,
    choose: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Fill the spans in an order; returns the windows `[n_windows, seq_len]` and the spans'
    log-probabilities.

    `choose(logs, column)` gives the characters `[n_windows, 1]` of a step, whose columns are
    `column` `[n_windows, 1]`; `logs` `[n_windows, n_ordinary]` is log q there, given the visible
    and the earlier characters.
    """
    inputs = spans.inputs.clone()
    total = torch.zeros(len(inputs), dtype=torch.float64)
    starts = torch.arange(len(inputs)) * inputs.shape[1]
    for column in spans.orders[order].split(1, dim=1):
        logs = (
            model(inputs, starts + column[:, 0])[:, :ordinary].double().log_softmax(1)
        )
        characters = choose(logs, column)
        total += logs.gather(1, characters)[:, 0]
        inputs.scatter_(1, column, characters)

    return inputs, total


def _estimate(values: Tensor) -> dict[str, float]:
    return {
        "nats": values.mean().item(),
        "stderr": (values.std() / len(values) ** 0.5).item(),
    }
