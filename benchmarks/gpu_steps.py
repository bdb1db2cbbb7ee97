"""The steps of benchmarks.gpu, each in a process of its own.

python -m benchmarks.gpu_steps STEP FILE SCALE [--dry-run]: the rows go to FILE, SCALE multiplies
budgets of trainings.
"""

import gc
import json
import math
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import throughput
from benchmarks.command import key_words, recipe
from benchmarks.time_to_loss import LOSSES, PEERS, measure, median_seconds, peer_keys
from benchmarks.trials import RUNS, last_losses, run_in, train
from benchmarks.turns import in_words, take_turns
from configs.callbacks import callbacks_of
from configs.command_line.command import PRESETS, read_config, resolve
from configs.devices import best_device
from configs.experiment import Configs, configs_of
from data.batch import Batch
from data.corpus import load_corpus
from data.play.grammar import play
from data.references.losses import window_losses
from model.ngrams import NGRAMS
from runs.files import ROOT, write_atomically, write_json
from runs.run_folder import RunFolder
from training.callbacks.callback import Callback
from training.callbacks.speed import seconds_per_call
from training.checkpoint import load_weights
from training.cuda_graph import EAGER_STEPS
from training.evaluation import evaluate
from training.loop import Trainer
from training.optimizers import set_learning_rate
from training.resume import begin, resume
from training.schedule import Stage
from training.tracking import be_quiet

TINY_SIZES = {"model.d_model": 32, "model.n_layers": 2, "model.n_heads": 2, "model.d_ff": 32}
TINY: dict[str, Any] = {"training.compile": False, "training.evaluations": 1}
TINY |= {"model.ngram_rows": 4_096, "training.chars_per_step": 512}
SHORT = {"training.max_seconds": None, "training.max_chars": None, "training.max_steps": 4}
SHAPES = [
    (throughput.ANNOTATED, 64, 32),
    *((throughput.LARGER, n, 256) for n in (512, 128, 2_048, 8)),
]
MODELS = "benchmarks.models"  # trains Hugging Face's models too
N_AT_ONCE = 4  # runs of the search; a small model leaves a GPU idle between its kernels
KERNELS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
EXACT = {"training.compile": False, "model.dropout": 0.0, "model.ngram_dropout": 0.0}


class Step:
    """A step that runs: its text, its share of the time, and the rows that it has found."""

    def __init__(self, file: Path, scale: float, is_dry: bool):
        self.file, self.scale, self.is_dry = file, scale, is_dry
        self.device, self.passed, self.rows = (
            torch.device(best_device()),
            True,
            list[tuple[str, str]](),
        )
        self.common: dict[str, Any] = {
            "data.corpus": "tiny_shakespeare",
            "sample.every_evaluations": 0,
        }
        if is_dry:
            write_atomically(text := file.with_name("play.txt"), play(40_000).encode())
            self.common["data.corpus"] = str(text)

    def add(self, what: str, value: object, passed: bool = True) -> None:
        """Write a row; a step that has not `passed` one fails."""
        self.rows.append((what, str(value) if passed else f"{value}: failed"))
        self.passed &= passed
        write_json(self.file, {"passed": self.passed, "rows": self.rows})

    def values(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        """All keys of the preset `gpu`, with others on top."""
        tiny = TINY_SIZES | TINY if self.is_dry else {}
        return resolve(read_config(PRESETS / "gpu.yaml"), self.common | tiny | dict(keys))

    def words(self, keys: Mapping[str, Any]) -> list[str]:
        """A training with the preset `gpu` as words of a command line, its budget multiplied by the
        scale."""
        scaled = {
            key: type(value)(value * self.scale) if key in SHORT else value
            for key, value in keys.items()
        }
        tiny = TINY_SIZES | TINY | SHORT if self.is_dry else {}
        return [
            "--preset",
            "gpu",
            *key_words({**self.common, "name": "gpu", "logs": str(RUNS), **scaled, **tiny}),
        ]


def environment(step: Step) -> None:
    """Versions, the compiler, the text, and the counting loss, which later steps take from the
    cache."""
    step.add(
        "Python, PyTorch, CUDA",
        f"{platform.python_version()}, {torch.__version__}, {torch.version.cuda}",
    )
    if step.device.type == "cuda":
        query = [
            "nvidia-smi",
            "--query-gpu=name,memory.total,driver_version",
            "--format=csv,noheader",
        ]
        step.add("GPU", subprocess.run(query, capture_output=True, text=True).stdout.strip())
    step.add(
        "compiler",
        "works",
        bool(torch.compile(torch.neg)(torch.ones(8, device=step.device)).sum() == -8),
    )
    step.add(
        "reference losses",
        list({} if step.is_dry else window_losses(load_corpus("tiny_shakespeare"))),
    )


def tests(step: Step) -> None:
    """The files with tests that use CUDA; a dry run takes another one."""
    names = (
        ["training/test_schedule"]
        if step.is_dry
        else ["training/test_cuda_graph", "model/test_embedding"]
    )
    words = [f"tests/{name}.py" for name in names]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True
    )
    step.add(
        " ".join(words),
        (result.stdout.splitlines() or [""])[-1] or "passed",
        result.returncode == 0,
    )


def gradients(configs: Configs, batch: Batch) -> dict[str, torch.Tensor]:
    """The loss and the gradients of a batch, by name, always with the same dropout."""
    torch.manual_seed(0)
    counts = configs.update.objective.counts([batch])
    outcome = configs.update.forward_backward(batch, counts)
    named = {
        name: p.grad.to_dense()
        for name, p in configs.network.named_parameters()
        if p.grad is not None
    }
    configs.network.zero_grad()
    return {"loss": configs.update.objective.normalized(outcome.sums, counts), **named}


def repeatable(step: Step) -> None:
    """The same step twice, bit by bit, per window length and attention kernel; kernels that are not
    used may differ."""
    configs = configs_of(step.values({"training.compile": False}))
    for stage in configs.training.all_stages:
        for _ in range(2):  # or outputs that start at zero would hide differences
            configs.step(stage)
        batch = configs.step.draw(stage)[0]
        for kernel in ("", *KERNELS):
            what = f"{stage.seq_len}, {kernel.lower() or 'as in training'}"
            unavailable = [RuntimeError] if kernel else []  # not all kernels are available
            with (
                suppress(*unavailable),
                sdpa_kernel(getattr(SDPBackend, kernel)) if kernel else nullcontext(),
            ):
                one, other = (gradients(configs, batch) for _ in range(2))
                differing = [name for name in one if not torch.equal(one[name], other[name])]
                found = f"{len(differing)} differ, such as {differing[0]}" if differing else "equal"
                step.add(what, found, not differing or bool(kernel))


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference between two tensors, relative to the norm of the first; infinite
    for nan."""
    difference = (one.double() - other.double()).norm()
    if difference == 0:
        return 0.0
    return float((difference / one.double().norm()).nan_to_num(math.inf))


def graph(step: Step) -> None:
    """As many replayed steps as eager ones from the same weights, through all stages."""
    eager, replayed = (configs_of(step.values({"training.cuda_graph": on})) for on in (False, True))
    lines: list[str] = []
    if replayed.cuda_graphs:
        replayed.cuda_graphs.report = lines.append
    for stage in eager.training.all_stages:
        for i in range(2 + EAGER_STEPS if step.is_dry else 200 // len(eager.training.all_stages)):
            losses = []
            for configs in (eager, replayed):
                torch.manual_seed(1_000 * stage.seq_len + i)
                set_learning_rate(configs.step.update.optimizers, 0.5 + 0.5 / (1 + i))
                losses.append(configs.step(stage)["loss"])
        difference = relative_difference(*losses)
        step.add(
            f"windows of {stage.seq_len}: last losses differ by",
            f"{difference:.1e}",
            difference < 1e-2,
        )
    step.add(
        "recorded", lines or ("all" if replayed.cuda_graphs else "none without CUDA"), not lines
    )


def agreement(step: Step) -> None:
    """One model and one batch on the CPU and on the device: rows of n-grams, loss, gradients and an
    evaluation."""
    one = configs_of(step.values(EXACT | {"device": "cpu", "training.precision": "float32"}))
    for _ in range(4 if step.is_dry else 20):
        one.step(one.training.all_stages[0])
    batch = one.step.draw(one.training.all_stages[0])[0]
    expected = gradients(one, batch)
    for precision, limit in (("bfloat16", 1e-2), ("float32", 1e-5)):
        other = configs_of(step.values(EXACT | {"training.precision": precision}))
        other.network.load_state_dict(one.network.state_dict())
        tensors: Any = {
            name: x.to(step.device) for name, x in batch._asdict().items() if torch.is_tensor(x)
        }
        moved = batch._replace(**tensors)
        found = {name: each.cpu() for name, each in gradients(other, moved).items()}
        for what, names in (
            ("loss", ["loss"]),
            ("gradients", [name for name in expected if name != "loss"]),
        ):
            difference = relative_difference(
                *(torch.cat([x[n].flatten() for n in names]) for x in (expected, found))
            )
            step.add(f"{precision}: {what} differ by", f"{difference:.1e}", difference < limit)
    networks: list[Any] = [one.network, other.network]
    rows, others = (
        n.encoder.ngrams.rows(b.inputs).cpu() for n, b in zip(networks, (batch, moved), strict=True)
    )
    step.add("rows of n-grams", "equal", torch.equal(rows, others))
    losses = [
        evaluate(
            c.network, c.data.validation, mask_token=c.data.vocabulary.mask_token, seq_len=256
        ).loss
        for c in (one, other)
    ]
    step.add("evaluations", f"{losses[0]:.6f}, {losses[1]:.6f}", abs(losses[0] - losses[1]) < 1e-4)


class StopAt(Callback):
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
        {"training.max_steps": n, "training.evaluations": 2, "training.compile": False}
    )
    with tempfile.TemporaryDirectory() as folder:
        runs = [RunFolder(Path(folder) / name) for name in ("whole", "halves")]
        for run, stop in ((runs[0], n), (runs[1], n // 2), (runs[1], n)):
            configs = configs_of(values)
            trainer = configs.trainer
            trainer.callbacks = [*callbacks_of(configs, run), StopAt(stop)]
            if run.path.exists():
                resume(run, trainer, values, configs.data.loaded)
            else:
                run.path.mkdir()
                begin(run, values, configs.data, "halves", {})
            trainer.train()
        one, other = (load_weights(run.checkpoints / "last.safetensors") for run in runs)
    differing = [name for name in one if not torch.equal(one[name], other[name])]
    step.add(
        f"{n} steps against {n // 2} and --resume", ", ".join(differing) or "equal", not differing
    )


def ceilings(step: Step) -> None:
    """Rates that no step can exceed: copies, matrix products, attention, and lookups in a table."""
    size, windows, n_rows, n = (2**8, 2, 2**12, 2) if step.is_dry else (2**13, 128, 2**20, 20)
    random = partial(torch.randn, device=step.device, dtype=torch.bfloat16)
    x, y, z, heads = (
        random(size, size),
        random(size, size),
        random(size, size),
        random(windows, 6, 256, 64),
    )
    table, rows = (
        random(n_rows, 256).float(),
        torch.randint(n_rows, (256 * windows, len(NGRAMS)), device=step.device),
    )
    heads, table, gradient = heads.requires_grad_(), table.requires_grad_(), torch.autograd.grad

    def attend() -> torch.Tensor:
        return gradient(F.scaled_dot_product_attention(heads, heads, heads).sum(), heads)[0]

    def look_up() -> torch.Tensor:
        return gradient(F.embedding_bag(rows, table, mode="sum").sum(), table)[0]

    for what, amount, call in (
        ("copies, GB per second", 2e-9 * x.nbytes, lambda: y.copy_(x)),
        ("products in bfloat16, TFLOP per second", 2e-12 * size**3, lambda: torch.mm(x, y, out=z)),
        (
            "attention and its gradients, TFLOP per second",
            14e-12 * windows * 6 * 256**2 * 64,
            attend,
        ),
        ("lookups and their gradients, million rows per second", 1e-6 * rows.numel(), look_up),
    ):
        seconds_per_call(call, 2)
        step.add(what, in_words(amount / median(seconds_per_call(call, n) for _ in range(3))))


def speeds(step: Step) -> None:
    """Steps per second and share of the peak in turns, launches per step, and the operations that
    take longest."""
    for sizes, n_windows, seq_len in [(TINY_SIZES, 8, 16)] if step.is_dry else SHAPES:
        name = (
            f"{sizes['model.n_layers']} layers of {sizes['model.d_model']}, {n_windows} x {seq_len}"
        )
        shape = (
            sizes
            | {"training.stages": [{"until": 1.0, "seq_len": seq_len}]}
            | (TINY if step.is_dry else {})
        )
        shape |= {
            "training.chars_per_step": n_windows * seq_len,
            "data.corpus": step.common["data.corpus"],
        }
        recipes = {
            each: keys | shape
            for each, keys in throughput.RECIPES.items()
            if each != throughput.FLOAT32
        }
        turns_of = {}
        for each, keys in recipes.items():
            gc.collect()  # recorded steps that nothing uses keep their memory until then
            try:
                turns_of[each] = throughput.candidate(keys, partial(step.add, each))
            except torch.OutOfMemoryError:
                step.add(f"{name}: {each}", "does not fit into the memory")
        if "Folio" not in turns_of:
            continue
        for variant, turns in take_turns(turns_of, 3).items():
            rate, share = (median(turn[measure] for turn in turns) for measure in turns[0])
            speed = in_words(rate / n_windows / seq_len)
            step.add(f"{name}: {variant}", f"{speed} steps per second, {share:.0%} of the peak")
        turns_of.clear()
        gc.collect()
        take = throughput.warmed_up_step(throughput.configured(shape))
        with torch.profiler.profile() as profiler:
            for _ in range(20):
                take()
        del take  # or its recorded step would keep its memory
        events = profiler.key_averages()
        step.add(
            f"{name}: launches per step",
            sum(event.count for event in events if "Launch" in event.key) / 20,
        )
        kernels = [
            event
            for event in events
            if event.device_type.name == "CUDA" and not event.is_user_annotation
        ]
        times = {
            event.key: event.self_device_time_total or event.self_cpu_time_total
            for event in kernels or events
        }
        total, longest = sum(times.values()), sorted(times, key=times.__getitem__, reverse=True)[:8]
        step.add(f"{name}: device time per step", f"{in_words(total / 20_000)} ms")
        step.add(
            f"{name}: longest operations",
            "; ".join(f"{times[key] / total:.0%} {key[:60]}" for key in longest),
        )


def search(step: Step) -> None:
    """The variants of recipes/gpu.yaml in two rounds of runs limited by characters; writes the best
    one."""
    variants, n, n_finalists = recipe("gpu").values()
    variants = dict(list(variants.items())[: 2 if step.is_dry else None])
    for n_chars, n_kept in ((n, n_finalists), (2 * n, 1)):
        # Compiling a variant would take longer than training it.
        common = {"training.max_chars": n_chars, "training.compile": False}
        all_words, losses = [step.words(keys | common) for keys in variants.values()], {}
        with ThreadPoolExecutor(N_AT_ONCE) as pool:  # their losses do not depend on their speed
            for name, (run, _) in zip(
                variants, pool.map(partial(train, program=MODELS), all_words), strict=True
            ):
                losses[name] = last_losses(run)["loss.valid"]
                step.add(
                    f"{n_chars * step.scale / 1e6:.0f} M characters, {name}", f"{losses[name]:.3f}"
                )
        variants = {
            name: variants[name] for name in sorted(losses, key=losses.__getitem__)[:n_kept]
        }
    write_json(step.file.with_name("winner.json"), variants)


def finalists(step: Step) -> None:
    """The preset and the winner of the search for 60 seconds, with two seeds each."""
    winner = step.file.with_name("winner.json")
    variants = {"as it is": {}} | (json.loads(winner.read_text()) if winner.exists() else {})
    for name, seed in [(name, seed) for seed in (0, 1) for name in variants]:
        words = step.words(variants[name] | {"training.max_seconds": 60.0, "seed": seed})
        last = last_losses(train(words, MODELS)[0])
        step.add(
            f"{name}, seed {seed}",
            f"{last['loss.valid']:.3f} after {last['chars'] / 1e6:.0f} M characters",
        )


def long(step: Step) -> None:
    """600 seconds in two halves: Ctrl-C in the middle, then --resume."""
    words, seconds, run = step.words({"training.max_seconds": 600.0}), 600.0 * step.scale, None
    while run is None or run.status()["status"] != "completed":
        command = [
            sys.executable,
            "experiment.py",
            *(["--resume", str(run.path)] if run else words),
        ]
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            # with the start
            output = process.communicate(timeout=None if run or step.is_dry else seconds / 2 + 60)[
                0
            ]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            output = process.communicate()[0]
        if process.returncode not in (0, 130) or (run := run_in(output)) is None:
            raise RuntimeError(output[-500:])
    step.add(f"{seconds:.0f} s in two halves", f"{last_losses(run)['loss.valid']:.3f}")


def peers(step: Step) -> None:
    """Seconds of training until losses, of 90: the preset and Hugging Face's models, which are not
    searched here."""
    for name in ("Folio", *PEERS["peers"]):
        keys = {} if name == "Folio" else peer_keys(name, "gpu")
        words = step.words(keys | {"training.max_seconds": 90.0, "training.evaluations": 12})
        found = measure(train(words, MODELS)[0])
        reached = ", ".join(f"{loss}: {median_seconds(loss, [found])}" for loss in LOSSES)
        step.add(name, f"{found['loss.valid']:.3f} at the end; {reached}")


STEPS: dict[str, Callable[[Step], None]] = {
    "resume": resumed,
    "throughput": speeds,
    "environment": environment,
}
STEPS |= {
    "tests": tests,
    "repeatable": repeatable,
    "graph": graph,
    "agreement": agreement,
    "ceilings": ceilings,
}
STEPS |= {"search": search, "finalists": finalists, "long": long, "peers": peers}

if __name__ == "__main__":
    be_quiet()
    STEPS[sys.argv[1]](Step(Path(sys.argv[2]), float(sys.argv[3]), "--dry-run" in sys.argv))
