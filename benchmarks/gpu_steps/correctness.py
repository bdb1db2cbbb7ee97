"""Steps that check the code on the device. They measure no time, so they run beside each other."""

import subprocess
import sys
import tempfile
from pathlib import Path

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
EXACT = {"training.compile": False, "model.dropout": 0.0, "model.ngram_dropout": 0.0}


def environment(step: Step) -> None:
    """The compiler, the texts, and the counting loss, which later steps take from the cache."""
    ones = torch.ones(8, device=step.device)
    step.add("compiler", "works", torch.compile(torch.neg)(ones).sum().item() == -8)
    base = configs_of(step.values({}, GPU_BASE)).data
    n_tokens = len(base.training_ids)
    step.add("documents", f"{n_tokens:,} tokens, {base.vocabulary.n_tokens:,} distinct")
    if not step.is_dry:
        losses = window_losses(load_corpus(step.text(GPU)))
        step.add("reference losses", list(losses))


def tests(step: Step) -> None:
    """The files with tests that use CUDA; a dry run takes another one."""
    files = ["tests/training/test_cuda_graph.py", "tests/model/test_embedding.py"]
    if step.is_dry:
        files = ["tests/training/test_schedule.py"]
    command = [sys.executable, "-m", "pytest", *files]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    last = result.stdout.strip().rpartition("\n")[2]
    step.add(" ".join(files), last, result.returncode == 0)


def gradients(configs: Configs, batch: Batch) -> Tensors:
    """The loss of a batch, and all gradients as one vector, on the CPU."""
    objective = configs.update.objective
    counts = objective.counts([batch])
    outcome = configs.update.forward_backward(batch, counts)
    loss = objective.normalized(outcome.sums, counts)
    parts = []
    for parameter in configs.network.parameters():
        if parameter.grad is not None:
            parts.append(parameter.grad.to_dense().flatten())
    configs.network.zero_grad()
    return {"loss": loss.double().cpu(), "gradients": torch.cat(parts).double().cpu()}


def agreement(step: Step) -> None:
    """Loss and gradients of one model and one batch on the CPU and on the device; those of
    `gpu-base` are of packed documents."""
    few = {"training.chars_per_step": 1_024, "training.grad_accum_steps": 1}
    for preset, keys, in_bfloat16 in ((GPU, {}, 1e-2), (GPU_BASE, few, 3e-2)):
        own = EXACT | keys | {"device": "cpu", "training.precision": "float32"}
        here = configs_of(step.values(own, preset))
        stage = here.training.all_stages[0]
        for _ in range(4):  # or outputs that start at zero would hide differences
            here.step(stage)
        batch = here.step.draw(stage)[0]
        expected = gradients(here, batch)

        for precision, limit in (("bfloat16", in_bfloat16), ("float32", 1e-5)):
            own = EXACT | keys | {"training.precision": precision}
            there = configs_of(step.values(own, preset))
            there.network.load_state_dict(here.network.state_dict())
            found = gradients(there, batch.to(step.device))
            for name, vector in expected.items():
                difference = float((found[name] - vector).norm() / vector.norm())
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
    budget = {"training.max_seconds": None, "training.max_steps": n}
    keys = {"training.evaluations": 2, "training.compile": False}
    values = step.values(budget | keys)

    with tempfile.TemporaryDirectory() as folder:
        whole = RunFolder(Path(folder) / "whole")
        halves = RunFolder(Path(folder) / "halves")
        for run, stop in ((whole, n), (halves, n // 2), (halves, n)):
            configs = configs_of(values)
            trainer = configs.trainer
            trainer.callbacks = [*callbacks_of(configs, run), StopAt(stop)]
            if run.path.exists():
                resume(run, trainer, values, configs.data.loaded)
            else:
                run.path.mkdir()
                begin(run, values, configs.data, "halves", {})
            trainer.train()
        one, other = [
            load_weights(run.checkpoints / "last.safetensors")
            for run in (whole, halves)
        ]

    differing = [name for name in one if not torch.equal(one[name], other[name])]
    what = f"{n} steps against {n // 2} and --resume"
    step.add(what, ", ".join(differing) or "equal", not differing)
