"""Models that are measured in turns, each in a process of its own.

They compile side by side, and all wait while one is measured. A process of its own shows the peak
of a model's memory, and one that runs out of memory does not stop the others.
"""

import json
import resource
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from benchmarks.throughput import Model
from benchmarks.turns import Measures
from training.callbacks.speed import seconds_per_call
from training.muon import Muon
from training.objective import masks_of
from training.tracking import be_quiet

PROFILED_STEPS = 20
N_WINDOWS = 4  # whose documents are computed alone


class Candidate:
    """A model in another process, as a candidate for `take_turns`."""

    def __init__(self, values: dict[str, Any]):
        self.values = json.dumps(values)
        context = get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, initializer=be_quiet)
        self.report = self.pool.submit(ask, self.values, "report")

    def ask(self, question: str) -> Any:
        answer = self.pool.submit(ask, self.values, question)
        return answer.result()

    def __call__(self) -> Measures:
        return {"tokens per second": self.ask("tokens_per_second")}


def ask(values: str, question: str) -> Any:
    """Call a method of the model with these keys, which the first call in a process builds."""
    method = getattr(model_of(values), question)
    return method()


@cache
def model_of(values: str) -> "Inspected":
    return Inspected(json.loads(values))


class Inspected(Model):
    """A model that tells more than its speed."""

    def __init__(self, values: dict[str, Any]):
        self.lines: list[str] = []
        super().__init__(values, self.lines.append)

    def report(self) -> str:
        """The lines about compiling, for example how long it took."""
        return "; ".join(self.lines[1:])

    def peak_memory(self) -> float:
        """Gigabytes of tensors on the device so far; on a CPU, of the process."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated() / 1e9
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_maxrss * 1024 / 1e9

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
        of_update = seconds_per_call(update, 10)
        of_step = seconds_per_call(self.take, 10)
        return of_update / of_step

    def print_profile(self) -> None:
        """Print the operations that take longest, into the log of the step."""
        with torch.profiler.profile() as profiler:
            for _ in range(PROFILED_STEPS):
                self.take()
        device = "cpu" if self.device.type == "cpu" else "device"
        events = profiler.key_averages()
        table = events.table(
            f"self_{device}_time_total",
            row_limit=12,
            max_name_column_width=60,
        )
        print(table, flush=True)

    @torch.no_grad()
    def difference_alone(self) -> float:
        """The norm of the difference between logits of packed documents and those of each one
        alone, relative to that of the latter."""
        network = self.configs.network.eval()
        batch = self.step.draw(self.stage)[0]
        all_documents = batch.attention_mask
        assert all_documents is not None
        seq_len = batch.inputs.shape[1]
        of_difference = torch.zeros((), device=self.device)
        of_alone = torch.zeros((), device=self.device)

        with torch.autocast(
            self.device.type,
            torch.bfloat16,
            enabled=self.configs.training.autocast,
        ):
            packed = network(batch.inputs, batch.positions, **masks_of(batch))
            for window, documents in enumerate(all_documents[:N_WINDOWS]):
                places = batch.positions[window] - window * seq_len
                n_documents = int(documents.max())
                for number in range(1, n_documents + 1):
                    is_inside = documents == number
                    is_here = is_inside[places]
                    begin = is_inside.nonzero()[0]
                    own_places = places[is_here] - begin
                    ids = batch.inputs[window, is_inside]

                    alone = network(ids[None], own_places).float()
                    difference = packed[window, is_here].float() - alone
                    of_difference += difference.square().sum()
                    of_alone += alone.square().sum()

        network.train()
        ratio = of_difference / of_alone
        return ratio.sqrt().item()
