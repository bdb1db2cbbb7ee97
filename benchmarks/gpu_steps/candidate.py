"""Models that are measured in turns, each in a process of its own.

They compile side by side, and all wait while one is measured. A process of its own shows the peak
of a model's memory, and one that runs out of memory does not stop the others.
"""

import json
import resource
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from benchmarks.turns import Measures, in_words
from configs.experiment import configs_of
from data.masking import n_masked_in
from planning.ladder import warmed_up
from runs.errors import first_line
from training.callbacks.speed import operations_per_char, seconds_per_call
from training.muon import Muon
from training.tracking import be_quiet

SECONDS_PER_TURN = 1.0
PROFILED_STEPS = 20
N_DRAWS = 8
N_WINDOWS = 4  # whose documents are computed alone


def processes(n: int, **options: Any) -> ProcessPoolExecutor:
    new = get_context("spawn")
    return ProcessPoolExecutor(n, new, initializer=be_quiet, **options)


class Candidate:
    """A model in another process, as a candidate for `take_turns`."""

    def __init__(self, values: dict[str, Any]):
        self.values = json.dumps(values)
        self.pool = processes(1)
        self.report = self.pool.submit(ask, self.values, "report")

    def ask(self, question: str) -> Any:
        return self.pool.submit(ask, self.values, question).result()

    def __call__(self) -> Measures:
        return self.ask("speed")


def ask(values: str, question: str) -> Any:
    """Call a method of the model with these keys, which the first call in a process builds."""
    return getattr(model_of(values), question)()


@contextmanager
def started(
    all_values: Mapping[str, dict[str, Any]],
) -> Iterator[tuple[dict[str, Candidate], dict[str, str]]]:
    """Models by name, and the report of each. One that fails is left out of the models."""
    candidates = {name: Candidate(values) for name, values in all_values.items()}
    pools = [candidate.pool for candidate in candidates.values()]
    reports = {}
    for name, candidate in list(candidates.items()):
        try:
            reports[name] = candidate.report.result()
        except Exception as error:
            reports[name] = f"not measured: {first_line(error)}"
            del candidates[name]
    try:
        yield candidates, reports
    finally:
        for pool in pools:
            pool.shutdown()


@cache
def model_of(values: str) -> "Model":
    return Model(json.loads(values))


class Model:
    """A model with a warmed-up training step."""

    def __init__(self, values: dict[str, Any]):
        self.configs = configs_of(values)
        self.lines: list[str] = []
        *_, last = warmed_up(self.configs, self.lines.append)
        self.step, stages = last
        self.stage = stages[-1]
        self.device = self.configs.torch_device

    def take(self) -> Tensor:
        return self.step(self.stage)["loss"]

    def report(self) -> str:
        """The lines about compiling, for example how long it took."""
        return "; ".join(self.lines[1:])

    def speed(self) -> Measures:
        """The mean over about a second of steps. Padding does not count."""
        n = max(1, round(SECONDS_PER_TURN / seconds_per_call(self.take, 2)))
        n_tokens = self.step.chars_per_step * self.share_filled
        return {"tokens per second": n_tokens / seconds_per_call(self.take, n)}

    @property
    def share_filled(self) -> float:
        """The share of positions with tokens."""
        shares = []
        for _ in range(N_DRAWS):
            mask = self.step.draw(self.stage)[0].attention_mask
            shares.append(1.0 if mask is None else (mask != 0).float().mean().item())
        return sum(shares) / N_DRAWS

    def operations(self) -> float:
        """Operations per token of the matrix products."""
        seq_len = self.stage.seq_len
        n_masked = n_masked_in(seq_len, self.stage.masking_prob)
        network = self.configs.network
        return operations_per_char(network, seq_len, n_masked, self.device)

    def peak_memory(self) -> float:
        """Gigabytes of tensors on the device so far; on a CPU, of the process."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated() / 1e9
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9

    def share_of_muon(self) -> float:
        """The time of Muon's update relative to that of a step. Overwrites the gradients."""
        optimizers = self.configs.update.optimizers
        muon = next(each for each in optimizers if isinstance(each, Muon))
        matrices = muon.param_groups[0]["params"]
        for matrix in matrices:
            matrix.grad = torch.randn_like(matrix)

        def update() -> Tensor:
            muon.step()
            return matrices[0].detach()

        seconds_per_call(update, 2)  # warms up
        return seconds_per_call(update, 10) / seconds_per_call(self.take, 10)

    def profile(self) -> dict[str, str]:
        """Launches and device time per step, and the operations that take longest."""
        with torch.profiler.profile() as profiler:
            for _ in range(PROFILED_STEPS):
                self.take()

        events = profiler.key_averages()
        n_launches = sum(event.count for event in events if "Launch" in event.key)
        times = {}
        for event in events:
            is_here = event.device_type.name == self.device.type.upper()
            if is_here and not event.is_user_annotation:
                time = event.self_device_time_total or event.self_cpu_time_total
                times[event.key] = time

        total = sum(times.values())
        longest = sorted(times, key=times.__getitem__, reverse=True)[:8]
        shares = [f"{times[key] / total:.0%} {key[:60]}" for key in longest]
        return {
            "launches per step": in_words(n_launches / PROFILED_STEPS),
            "device time per step": f"{in_words(total / PROFILED_STEPS / 1_000)} ms",
            "longest operations": "; ".join(shares),
        }

    @torch.no_grad()
    def difference_alone(self) -> float:
        """The norm of the difference between logits of packed documents and those of each one
        alone, relative to that of the latter."""
        network = self.configs.network.eval()
        batch = self.step.draw(self.stage)[0]
        assert batch.attention_mask is not None
        inputs = batch.inputs[:N_WINDOWS]
        documents = batch.attention_mask[:N_WINDOWS]
        norms = torch.zeros(2, device=self.device)
        autocast = self.configs.training.autocast

        with torch.autocast(self.device.type, torch.bfloat16, enabled=autocast):
            logits = network(inputs, attention_mask=documents)
            packed = logits.float().view(*inputs.shape, -1)
            for window, numbers in enumerate(documents):
                for number in range(1, int(numbers.max()) + 1):
                    is_here = numbers == number
                    alone = network(inputs[window, is_here][None]).float()
                    difference = packed[window, is_here] - alone
                    norms[0] += difference.square().sum()
                    norms[1] += alone.square().sum()

        network.train()
        return (norms[0] / norms[1]).sqrt().item()
