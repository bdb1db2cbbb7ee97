"""Adds the speed of the matrix products, as a share of the device's peak rate, to each row."""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from data.masking import n_masked_in
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation, evaluating
from training.loop import Trainer

SECONDS_PER_ROUND = 0.01
ROUNDS = 3
MOST_ROWS = 16_384  # of the product whose rate is the peak


class ShareOfPeak(Callback):
    """Adds the rate of the model's matrix products, relative to that of its largest matrix in a
    product alone."""

    def __init__(self, n_devices: int):
        self.n_devices = n_devices
        self.peak = 0.0  # of one device; 0 if the model has no matrices

    def begin(self, trainer: Trainer) -> None:
        step = trainer.training_step
        n_rows = step.chars_per_step // (self.n_devices * step.grad_accum_steps)
        dtype = torch.bfloat16 if step.update.autocast else torch.float32
        self.peak = peak(trainer.model, n_rows, step.update.device, dtype)

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        if self.peak == 0:
            return
        seq_len = row["seq_len"]
        operations = operations_per_char(
            trainer.model,
            seq_len,
            n_masked_in(seq_len, row["masking_prob"]),
            trainer.training_step.update.device,
        )
        rate = row["chars_per_second"] * operations
        row["share_of_peak"] = rate / self.n_devices / self.peak


def operations_per_char(
    model: nn.Module, seq_len: int, n_masked: int, device: torch.device
) -> float:
    """Floating-point operations of a model's matrix products, forward and backward, which takes
    twice as many."""
    inputs = torch.zeros(1, seq_len, dtype=torch.int64, device=device)
    positions = torch.arange(n_masked, device=device)[None]
    counter = FlopCounterMode(display=False)
    with evaluating(model, device), sdpa_kernel(SDPBackend.MATH), counter:
        model(inputs, positions)
    return 3 * counter.get_total_flops() / seq_len


def peak(
    model: nn.Module, n_rows: int, device: torch.device, dtype: torch.dtype
) -> float:
    """The rate, in operations per second, of products of `[n_rows, n_in]` and the largest matrix of
    the model."""
    shapes = [
        module.weight.shape
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    if not shapes:
        return 0.0
    n_out, n_in = max(shapes, key=torch.Size.numel)
    n_rows = min(n_rows, MOST_ROWS)
    generator = torch.Generator(device).manual_seed(0)
    random = partial(torch.randn, generator=generator, dtype=dtype, device=device)
    product = partial(
        torch.mm, random(n_rows, n_in), random(n_in, n_out), out=random(n_rows, n_out)
    )
    seconds_per_call(product, 1)  # warms up
    n_calls = max(1, int(SECONDS_PER_ROUND / seconds_per_call(product, 3)))
    fastest = min(seconds_per_call(product, n_calls) for _ in range(ROUNDS))
    return 2 * n_rows * n_in * n_out / fastest


def seconds_per_call(call: Callable[[], torch.Tensor], n: int) -> float:
    """The mean over `n` calls, including the device's work."""
    began = time.perf_counter()
    for _ in range(n):
        result = call()
    result.flatten()[0].item()  # waits for the device
    return (time.perf_counter() - began) / n
