"""The steps of benchmarks.gpu, each in a process of its own.

python -m benchmarks.gpu_steps STEP FILE SCALE [--dry-run]: the rows go to FILE, SCALE multiplies
budgets of trainings.
"""

import gc
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks import throughput
from benchmarks.command import key_words, recipe
from benchmarks.time_to_loss import LOSSES, PEERS, measure, median_seconds, peer_keys
from benchmarks.trials import RUNS, last_losses, run_in, start, train
from benchmarks.turns import in_words, take_turns
from configs.acceleration import compiled_objective, cuda_graphs
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

TINY_SIZES = {
    "model.d_model": 32,
    "model.n_layers": 2,
    "model.n_heads": 2,
    "model.d_ff": 32,
}
TINY: dict[str, Any] = {
    "training.compile": False,
    "training.evaluations": 1,
    "model.ngram_rows": 4_096,
    "training.chars_per_step": 512,
}
SHORT = {
    "training.max_seconds": None,
    "training.max_chars": None,
    "training.max_steps": 4,
}
SHAPES = [
    (throughput.ANNOTATED, 64, 32),
    (throughput.LARGER, 512, 256),
    (throughput.LARGER, 128, 256),
    (throughput.LARGER, 2_048, 256),
    (throughput.LARGER, 8, 256),
]
PROFILED_STEPS = 20
N_AT_ONCE = 4  # runs of the search; a small model leaves a GPU idle between its kernels
Tensors = dict[str, torch.Tensor]
EXACT = {"training.compile": False, "model.dropout": 0.0, "model.ngram_dropout": 0.0}


class Step:
    """A step that runs: its text, its share of the time, and the rows that it has written."""

    def __init__(self, file: Path, scale: float, is_dry: bool):
        self.file = file
        self.scale = scale
        self.is_dry = is_dry
        self.device = torch.device(best_device())
        self.passed = True
        self.rows: list[tuple[str, str]] = []
        self.common = {"data.corpus": "tiny_shakespeare", "sample.every_evaluations": 0}

        if is_dry:
            text = file.with_name("play.txt")
            write_atomically(text, play(40_000).encode())
            self.common |= {"data.corpus": str(text), **TINY_SIZES, **TINY}

    def add(self, what: str, value: object, passed: bool = True) -> None:
        """Write a row; a step that has not `passed` one fails."""
        self.rows.append((what, str(value) if passed else f"{value}: failed"))
        self.passed &= passed
        write_json(self.file, {"passed": self.passed, "rows": self.rows})

    def add_difference(
        self, what: str, one: torch.Tensor, other: torch.Tensor, limit: float
    ) -> None:
        """Write the norm of the difference between two tensors, relative to that of the first."""
        difference = float((one - other).norm() / one.norm())
        self.add(f"{what} differ by", f"{difference:.1e}", difference < limit)

    def add_differing(self, what: str, one: Tensors, other: Tensors) -> None:
        """Write the names of the tensors that are not the same, bit for bit."""
        names = [name for name in one if not torch.equal(one[name], other[name])]
        self.add(what, ", ".join(names) or "equal", not names)

    def values(self, keys: dict[str, Any]) -> dict[str, Any]:
        """All keys of the preset `gpu`, with others on top."""
        return resolve(read_config(PRESETS / "gpu.yaml"), self.common | keys)

    def train(self, keys: dict[str, Any]) -> RunFolder:
        """Train with the preset `gpu`."""
        run, _ = train(self.words(keys))
        return run

    def words(self, keys: dict[str, Any]) -> list[str]:
        """A training with the preset `gpu` as words of a command line."""
        own = {**self.common, "name": "gpu", "logs": str(RUNS), **keys}
        if self.is_dry:
            own |= TINY_SIZES | TINY | SHORT
        return ["--preset", "gpu", *key_words(own)]


def environment(step: Step) -> None:
    """CUDA's version, the compiler, the text, and the counting loss, which later steps take from
    the cache."""
    step.add("CUDA", torch.version.cuda)
    if step.device.type == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version"]
        result = subprocess.run(
            [*query, "--format=csv,noheader"], capture_output=True, text=True
        )
        step.add("GPU", result.stdout.strip())
    ones = torch.ones(8, device=step.device)
    step.add("compiler", "works", torch.compile(torch.neg)(ones).sum().item() == -8)
    if not step.is_dry:
        step.add(
            "reference losses",
            list(window_losses(load_corpus(step.common["data.corpus"]))),
        )


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
    """The loss and the gradients of a batch, by name, always with the same dropout."""
    torch.manual_seed(0)
    objective = configs.update.objective
    counts = objective.counts([batch])
    outcome = configs.update.forward_backward(batch, counts)
    named = {"loss": objective.normalized(outcome.sums, counts)}

    for name, parameter in configs.network.named_parameters():
        if parameter.grad is not None:
            named[name] = parameter.grad.to_dense()

    configs.network.zero_grad()
    return named


def repeatable(step: Step) -> None:
    """The same step twice, bit by bit, per window length."""
    configs = configs_of(step.values({"training.compile": False}))
    for stage in configs.training.all_stages:
        for _ in range(2):  # or outputs that start at zero would hide differences
            configs.step(stage)
        batch = configs.step.draw(stage)[0]
        one = gradients(configs, batch)
        step.add_differing(
            f"windows of {stage.seq_len}", one, gradients(configs, batch)
        )


def graph(step: Step) -> None:
    """As many replayed steps as eager ones from the same weights, through all stages."""
    eager = configs_of(step.values({"training.cuda_graph": False}))
    replayed = configs_of(step.values({"training.cuda_graph": True}))
    lines: list[str] = []
    for configs in (eager, replayed):
        if compiled := compiled_objective(configs):
            configs.update.objective = compiled  # type: ignore[bad-assignment]
    graphs = cuda_graphs(replayed)
    if graphs:
        graphs.report = lines.append
        replayed.step.run_update = graphs
    stages = eager.training.all_stages
    n_steps = 2 + EAGER_STEPS if step.is_dry else 200 // len(stages)

    for stage in stages:
        for i in range(n_steps):
            losses = []
            for configs in (eager, replayed):
                torch.manual_seed(1_000 * stage.seq_len + i)
                set_learning_rate(configs.update.optimizers, 0.5 + 0.5 / (1 + i))
                losses.append(configs.step(stage)["loss"])
        step.add_difference(
            f"windows of {stage.seq_len}: last losses", *losses, limit=1e-2
        )

    recorded = "all" if graphs else "none without CUDA"
    step.add("recorded", lines or recorded, not lines)


def agreement(step: Step) -> None:
    """One model and one batch on the CPU and on the device: rows of n-grams, loss, gradients and an
    evaluation."""
    one = configs_of(
        step.values(EXACT | {"device": "cpu", "training.precision": "float32"})
    )
    stage = one.training.all_stages[0]

    for _ in range(4 if step.is_dry else 20):
        one.step(stage)

    batch = one.step.draw(stage)[0]
    expected = as_vectors(gradients(one, batch))

    for precision, limit in (("bfloat16", 1e-2), ("float32", 1e-5)):
        other = configs_of(step.values(EXACT | {"training.precision": precision}))
        other.network.load_state_dict(one.network.state_dict())
        moved = batch.to(step.device)
        measured = as_vectors(gradients(other, moved))
        for name, vector in expected.items():
            step.add_difference(f"{precision}: {name}", vector, measured[name], limit)

    rows = rows_of(one, batch)
    step.add("rows of n-grams", "equal", torch.equal(rows, rows_of(other, moved)))
    losses = []

    for c in (one, other):
        mask_token = c.data.vocabulary.mask_token
        evaluation = evaluate(
            c.network, c.data.validation_set, mask_token=mask_token, seq_len=256
        )
        losses.append(evaluation.loss)

    step.add(
        "evaluations",
        f"{losses[0]:.6f}, {losses[1]:.6f}",
        abs(losses[0] - losses[1]) < 1e-4,
    )


def as_vectors(named: Tensors) -> Tensors:
    """The loss, and all gradients as one vector, on the CPU."""
    loss = named.pop("loss")
    vectors = {
        "loss": loss,
        "gradients": torch.cat([each.flatten() for each in named.values()]),
    }
    return {name: vector.double().cpu() for name, vector in vectors.items()}


def rows_of(configs: Configs, batch: Batch) -> torch.Tensor:
    """The rows of the n-gram tables that a batch reads."""
    network: Any = configs.network
    return network.encoder.ngrams.rows(batch.inputs).cpu()


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
    keys = {
        "training.max_steps": n,
        "training.evaluations": 2,
        "training.compile": False,
    }
    values = step.values(keys)

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

    step.add_differing(f"{n} steps against {n // 2} and --resume", one, other)


def ceilings(step: Step) -> None:
    """Rates that no step can exceed: copies, matrix products, attention, and lookups in a table."""
    size = 256 if step.is_dry else 8_192
    n_windows = 2 if step.is_dry else 128
    n_rows = 4_096 if step.is_dry else 2**20
    n_calls = 2 if step.is_dry else 20
    random = partial(torch.randn, device=step.device, dtype=torch.bfloat16)
    x = random(size, size)
    y = random(size, size)
    z = random(size, size)
    heads = random(n_windows, 6, 256, 64).requires_grad_()
    table = random(n_rows, 256).float().requires_grad_()
    rows = torch.randint(n_rows, (256 * n_windows, len(NGRAMS)), device=step.device)

    def attend() -> torch.Tensor:
        attended = F.scaled_dot_product_attention(heads, heads, heads)
        return torch.autograd.grad(attended.sum(), heads)[0]

    def look_up() -> torch.Tensor:
        vectors = F.embedding_bag(rows, table, mode="sum")
        return torch.autograd.grad(vectors.sum(), table)[0]

    def add(what: str, amount: float, call: Callable[[], Any]) -> None:
        seconds_per_call(call, 2)  # warms up
        seconds = median(seconds_per_call(call, n_calls) for _ in range(3))
        step.add(what, in_words(amount / seconds))

    attended = 14e-12 * 256 * heads.numel()
    add("copies, GB per second", 2e-9 * x.nbytes, lambda: y.copy_(x))
    add(
        "products in bfloat16, TFLOP per second",
        2e-12 * size**3,
        lambda: torch.mm(x, y, out=z),
    )
    add("attention and its gradients, TFLOP per second", attended, attend)
    add(
        "lookups and their gradients, million rows per second",
        1e-6 * rows.numel(),
        look_up,
    )


def speeds(step: Step) -> None:
    """Steps per second and share of the peak in turns, launches per step, and the operations that
    take longest."""
    shapes = [(TINY_SIZES, 8, 16)] if step.is_dry else SHAPES

    for sizes, n_windows, seq_len in shapes:
        name = throughput.shape_name(sizes, n_windows, seq_len)
        shape = step.common | throughput.shape_keys(sizes, n_windows, seq_len)
        candidates = {}

        for variant, keys in throughput.RECIPES.items():
            if variant == throughput.FLOAT32:
                continue
            gc.collect()  # recorded steps that nothing uses keep their memory until then
            try:
                candidates[variant] = throughput.candidate(
                    keys | shape, partial(step.add, variant)
                )
            except torch.OutOfMemoryError:
                step.add(f"{name}: {variant}", "does not fit into the memory")
        for variant, turns in take_turns(candidates, 3).items():
            rates, shares = zip(*[turn.values() for turn in turns], strict=True)
            speed = in_words(median(rates) / n_windows / seq_len)
            share = median(shares)
            step.add(
                f"{name}: {variant}",
                f"{speed} steps per second, {share:.0%} of the peak",
            )
        if "Folio" in candidates:
            candidates.clear()
            gc.collect()
            profile(step, name, shape)


def profile(step: Step, name: str, keys: dict[str, Any]) -> None:
    """Add the launches per step of Folio, and the operations that take longest."""
    take = throughput.warmed_up_step(throughput.configured(keys))
    with torch.profiler.profile() as profiler:
        for _ in range(PROFILED_STEPS):
            take()

    events = profiler.key_averages()
    n_launches = sum(event.count for event in events if "Launch" in event.key)
    step.add(f"{name}: launches per step", n_launches / PROFILED_STEPS)

    times = {}

    for event in events:
        if (
            event.device_type.name == step.device.type.upper()
            and not event.is_user_annotation
        ):
            times[event.key] = event.self_device_time_total or event.self_cpu_time_total

    total = sum(times.values())
    step.add(
        f"{name}: device time per step",
        f"{in_words(total / PROFILED_STEPS / 1_000)} ms",
    )
    longest = sorted(times, key=times.__getitem__, reverse=True)[:8]
    shares = [f"{times[key] / total:.0%} {key[:60]}" for key in longest]
    step.add(f"{name}: longest operations", "; ".join(shares))


def search(step: Step) -> None:
    """The variants of recipes/gpu.yaml in two rounds of runs limited by characters; writes the best
    one."""
    variants, n_chars, n_finalists = recipe("gpu").values()
    if step.is_dry:
        variants = dict(list(variants.items())[:2])

    for n, n_kept in ((n_chars, n_finalists), (2 * n_chars, 1)):
        # Compiling a variant would take longer than training it.
        common = {"training.max_chars": int(n * step.scale), "training.compile": False}
        all_keys = [keys | common for keys in variants.values()]
        losses = {}

        # their losses do not depend on their speed
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            for name, run in zip(variants, pool.map(step.train, all_keys), strict=True):
                losses[name] = last_losses(run)["loss.valid"]
                step.add(
                    f"{n * step.scale / 1e6:.0f} M characters, {name}",
                    f"{losses[name]:.3f}",
                )
        best = sorted(losses, key=losses.__getitem__)[:n_kept]
        variants = {name: variants[name] for name in best}

    write_json(step.file.with_name("winner.json"), variants)


def finalists(step: Step) -> None:
    """The preset and the winner of the search for 60 seconds, with two seeds each."""
    variants: dict[str, Any] = {"as it is": {}}
    winner = step.file.with_name("winner.json")

    if winner.exists():
        variants |= json.loads(winner.read_text())
    budget = {"training.max_seconds": 60.0 * step.scale}
    for seed, (name, keys) in product((0, 1), variants.items()):
        last = last_losses(step.train(keys | budget | {"seed": seed}))
        chars = f"{last['chars'] / 1e6:.0f} M characters"
        step.add(f"{name}, seed {seed}", f"{last['loss.valid']:.3f} after {chars}")


def long(step: Step) -> None:
    """600 seconds in two halves: Ctrl-C in the middle, then --resume."""
    seconds = 600.0 * step.scale
    words = step.words({"training.max_seconds": seconds})
    limit = None if step.is_dry else seconds / 2 + 60  # with the start
    run = None

    while run is None or run.status()["status"] != "completed":
        process = start(words)
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate()
        run = run_in(output)
        if process.returncode not in (0, 130) or run is None:
            raise RuntimeError(output[-500:])
        words = ["--resume", str(run.path)]
        limit = None

    step.add(f"{seconds:.0f} s in two halves", f"{last_losses(run)['loss.valid']:.3f}")


def peers(step: Step) -> None:
    """Seconds of training until losses, of 90: the preset and Hugging Face's models, which are not
    searched here."""
    budget = {"training.max_seconds": 90.0 * step.scale, "training.evaluations": 12}
    variants = {
        "Folio": {},
        **{name: peer_keys(name, "gpu") for name in PEERS["peers"]},
    }
    for name, keys in variants.items():
        results = measure(step.train(keys | budget))
        reached = ", ".join(
            f"{loss}: {median_seconds(loss, [results])}" for loss in LOSSES
        )
        step.add(name, f"{results['loss.valid']:.3f} at the end; {reached}")


STEPS: dict[str, Callable[[Step], None]] = {
    "environment": environment,
    "tests": tests,
    "repeatable": repeatable,
    "graph": graph,
    "agreement": agreement,
    "resume": resumed,
    "ceilings": ceilings,
    "throughput": speeds,
    "search": search,
    "finalists": finalists,
    "long": long,
    "peers": peers,
}

if __name__ == "__main__":
    be_quiet()
    STEPS[sys.argv[1]](
        Step(Path(sys.argv[2]), float(sys.argv[3]), "--dry-run" in sys.argv)
    )
