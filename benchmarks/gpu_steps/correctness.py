"""Steps that check the code on the device. They measure no time, so they run beside each other."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_steps.step import GPU, GPU_BASE, Step
from configs.callbacks import callbacks_of
from configs.experiment import Configs, configs_of
from data.batch import Batch
from data.corpus import load_corpus
from data.references.losses import window_losses
from runs.files import ROOT
from runs.run_folder import RunFolder
from training.callbacks.callback import Callback
from training.checkpoint import load_weights
from training.loop import Trainer
from training.resume import begin, resume
from training.schedule import Stage

Tensors = dict[str, torch.Tensor]
LAST = "last.safetensors"
TESTS = [
    "tests/training/test_cuda_graph.py",
    "tests/model/test_embedding.py",
]
EXACT = {
    "training.compile": False,
    "model.dropout": 0.0,
    "model.ngram_dropout": 0.0,
}
FEW = {  # packed documents
    "training.chars_per_step": 1_024,
    "training.grad_accum_steps": 1,
}
FLOAT32_LIMIT = 1e-5
BFLOAT16_LIMITS = {GPU: 1e-2, GPU_BASE: 3e-2}


def environment(step: Step) -> None:
    """The compiler, the texts, and the counting loss, which later steps take from the cache."""
    ones = torch.ones(8, device=step.device)
    compiled = torch.compile(torch.neg)
    total = compiled(ones).sum()
    step.add("compiler", "works", total.item() == -8)

    base = configs_of(step.values({}, GPU_BASE))
    n_tokens = len(base.data.training_ids)
    n_distinct = base.data.vocabulary.n_tokens
    step.add("documents", f"{n_tokens:,} tokens, {n_distinct:,} distinct")

    if not step.is_dry:
        corpus = load_corpus(step.text(GPU))
        losses = window_losses(corpus)
        step.add("reference losses", list(losses))


def tests(step: Step) -> None:
    """The files with tests that use CUDA; a dry run takes another one."""
    files = TESTS
    if step.is_dry:
        files = ["tests/training/test_schedule.py"]
    command = [sys.executable, "-m", "pytest", *files]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = result.stdout.strip().split("\n")
    has_passed = result.returncode == 0
    step.add(" ".join(files), lines[-1], has_passed)


def gradients(configs: Configs, batch: Batch) -> Tensors:
    """The loss of a batch, and all gradients as one vector, on the CPU."""
    objective = configs.update.objective
    counts = objective.counts([batch])
    outcome = configs.update.forward_backward(batch, counts)
    loss = objective.normalized(outcome.sums, counts)
    parts = []
    for parameter in configs.network.parameters():
        gradient = parameter.grad
        if gradient is not None:
            parts.append(gradient.to_dense().flatten())
    configs.network.zero_grad()

    joined = torch.cat(parts)
    return {
        "loss": loss.double().cpu(),
        "gradients": joined.double().cpu(),
    }


def agreement(step: Step) -> None:
    """Loss and gradients of one model and one batch on the CPU and on the device; those of
    `gpu-base` are of packed documents."""
    agreement_of(step, GPU, EXACT)
    agreement_of(step, GPU_BASE, EXACT | FEW)


def agreement_of(step: Step, preset: str, keys: dict[str, Any]) -> None:
    on_cpu = {"device": "cpu", "training.precision": "float32"}
    here = configs_of(step.values(keys | on_cpu, preset))
    stage = here.training.all_stages[0]
    for _ in range(4):  # or outputs that start at zero would hide differences
        here.step(stage)
    batch = here.step.draw(stage)[0]
    expected = gradients(here, batch)

    limits = {
        "bfloat16": BFLOAT16_LIMITS[preset],
        "float32": FLOAT32_LIMIT,
    }
    for precision, limit in limits.items():
        own = keys | {"training.precision": precision}
        there = configs_of(step.values(own, preset))
        there.network.load_state_dict(here.network.state_dict())
        found = gradients(there, batch.to(step.device))

        for name, vector in expected.items():
            distance = (found[name] - vector).norm()
            difference = float(distance / vector.norm())
            what = f"{preset}, {precision}: {name} differ by"
            step.add(what, f"{difference:.1e}", difference < limit)


class StopAt(Callback):
    """Stops the training after a step."""

    def __init__(self, step: int):
        self.step = step

    def stepped(self, trainer: Trainer, stage: Stage) -> None:
        trainer.must_stop = trainer.step == self.step


def resumed(step: Step) -> None:
    """Steps in one run, and in two halves of which the second resumes the first: the same weights,
    bit for bit. They are not compiled: on CUDA the compiler's code adds the gradients of a table's
    rows in varying order."""
    n = 8 if step.is_dry else 300
    values = step.values(
        {
            "training.max_seconds": None,
            "training.max_steps": n,
            "training.evaluations": 2,
            "training.compile": False,
        }
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = RunFolder(folder / "whole")
        halves = RunFolder(folder / "halves")
        train_until(n, whole, values)
        train_until(n // 2, halves, values)
        train_until(n, halves, values)
        one = load_weights(whole.checkpoints / LAST)
        other = load_weights(halves.checkpoints / LAST)

    differing = []
    for name, weight in one.items():
        if not torch.equal(weight, other[name]):
            differing.append(name)
    what = f"{n} steps against {n // 2} and --resume"
    found = ", ".join(differing) or "equal"
    step.add(what, found, not differing)


def train_until(stop: int, run: RunFolder, values: dict[str, Any]) -> None:
    """Begin a run, or resume it, and train until the step `stop`."""
    configs = configs_of(values)
    trainer = configs.trainer
    trainer.callbacks = callbacks_of(configs, run)
    trainer.callbacks.append(StopAt(stop))
    if run.path.exists():
        resume(run, trainer, values, configs.data.loaded)
    else:
        run.path.mkdir()
        begin(run, values, configs.data, "halves", {})
    trainer.train()
