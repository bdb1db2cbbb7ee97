"""A ladder of small runs: two sizes, each with three or four budgets of characters and a complete
schedule."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, groupby, product
from typing import Any, NamedTuple

from configs.acceleration import (
    compiled_objective,
    cuda_graphs,
    follows_clock,
    recorded_draws,
)
from configs.callbacks import simple_losses
from configs.command_line.command import resolve
from configs.compiled_code import kept_code
from configs.experiment import Configs, configs_of
from configs.keys import ConfigError
from configs.memory import is_out_of_memory
from data.corpus import Corpus
from planning.law import MIN_RUNS, Run
from training.callbacks.callback import Callback, Row, Weights
from training.callbacks.health_checks import HealthCheckError, HealthChecks
from training.callbacks.threads import ThreadChoice
from training.callbacks.weight_norm import dense_weights
from training.cuda_graph import EAGER_STEPS
from training.loop import Trainer
from training.schedule import Stage
from training.step import TrainingStep

SIZES = (
    (32, 1),
    (64, 1),
    (128, 1),
    (128, 2),
    (128, 4),
    (256, 4),
    (384, 6),
    (512, 8),
    (768, 12),
    (1024, 16),
)
SIZE_FOR_THREADS = (128, 2)
FEWEST_SHAPES = 3
N_SIZES = 2  # longer runs tell more than a third size
# Steps of the shortest run, best first. `rungs` tries all SPACINGS with 40 steps, then with 20.
FEWEST_STEPS = (40, 20, 12)
# Number of lengths per size and the ratio between them, best first.
SPACINGS = ((4, 3.0), (3, 3.0), (3, 2.0))
DIVERGED = 1.1  # times the loss of guessing all tokens alike; the start of training is just above it
LATE = 1.5  # times the expected time, after which the longest rungs are left out
SHARE_TO_MEASURE = 0.2  # of the ladder's time, to measure speeds
TIMED_SECONDS = 0.3  # per row of stages
SECONDS_TO_BUILD = 1.0  # per run
COST_OF_READING = 0.4  # of evaluating a character, relative to training on one
SECONDS_TO_COMPILE = 15.0  # kept of the ladder's time, at most a quarter of it
EVALUATIONS = 10  # of the longest rung, whose curve shows how losses fall within a run
# a rung is too short for either
EAGER = {"training.compile": False, "training.cuda_graph": False}
say = partial(print, flush=True)  # shows each line at once


def is_compiled(values: Mapping[str, Any]) -> bool:
    """Whether the steps of a run may be compiled, or recorded as a CUDA graph."""
    return values["training.compile"] or values["device"].startswith("cuda")


class Shape(NamedTuple):
    """A model and its speed."""

    keys: dict[str, int]
    n_weights: int  # outside of tables
    chars_per_second: float

    @property
    def name(self) -> str:
        return f"{self.keys['model.n_layers']} x {self.keys['model.d_model']}"


class Rung(NamedTuple):
    """A run of the ladder."""

    shape: Shape
    n_chars: int
    seconds: float  # expected, with building and one evaluation; the last rung has EVALUATIONS


def shape_keys(d_model: int, n_layers: int) -> dict[str, int]:
    """The keys of a size; d_ff and the heads follow the presets."""
    return {
        "model.d_model": d_model,
        "model.n_layers": n_layers,
        "model.d_ff": 2 * d_model,
        "model.n_heads": max(4, d_model // 64),
    }


def built(
    values: Mapping[str, Any], corpus: Corpus, keys: Mapping[str, Any]
) -> Configs:
    """The config tree of a run on a text that is loaded already."""
    configs = configs_of(resolve(values, keys))
    configs._set_values({"data.loaded": corpus})
    return configs


def n_weights(model: Any) -> int:
    return sum(weight.numel() for weight in dense_weights(model))


def warmed_up(
    configs: Configs, report: Callable[[str], None]
) -> Iterator[tuple[TrainingStep, list[Stage]]]:
    """Yields the training step and the stages of each row of the schedule, warmed up: compiled and
    recorded as the configs say, or a report says why not. A row with windows of another length
    drops the graphs of the row before.
    """
    step = configs.step
    graphs = cuda_graphs(configs)

    if graphs:
        graphs.report = report
        step.run_update = graphs
    if draws := recorded_draws(configs):
        draws.report = report
        configs.source.draw = draws  # type: ignore[method-assign]
    if compiled := compiled_objective(configs):
        compiled.compile(step, configs.training.all_stages, report, kept_code(report))
    for _, stages in groupby(configs.training.all_stages, lambda stage: stage.until):
        row = list(stages)  # a stage per masking rate
        # the step after the eager ones is recorded
        for stage in row * (EAGER_STEPS + 1 if graphs else 1):
            step(stage)["loss"].item()
        yield step, row


def measured(
    values: Mapping[str, Any],
    corpus: Corpus,
    keys: dict[str, int],
    n_times: int = 1,
    **more: Any,
) -> Shape:
    """A shape with its speed over the whole schedule, whose rows end at shares of the characters;
    each row is measured for `n_times` TIMED_SECONDS."""
    configs = built(values, corpus, keys | more)
    seconds_per_char = 0.0
    share_before = 0.0

    for step, row in warmed_up(configs, say):
        share = row[0].until - share_before
        seconds_per_char += (
            share * seconds_per_step(step, row, n_times) / step.chars_per_step
        )
        share_before = row[0].until

    return Shape(keys, n_weights(configs.network), 1 / seconds_per_char)


def seconds_per_step(step: TrainingStep, row: Sequence[Stage], n_times: int) -> float:
    """The mean over `n_times` TIMED_SECONDS of steps, which take turns with the stages of a row."""
    stages = cycle(row)
    began = time.perf_counter()
    seconds = 0.0
    n_steps = 0

    while seconds < n_times * TIMED_SECONDS:
        loss = step(next(stages))["loss"]
        n_steps += 1
        if (
            n_steps & (n_steps - 1) == 0
        ):  # to wait after each step would slow a GPU down
            loss.item()
            seconds = time.perf_counter() - began

    return seconds / n_steps


class Printer(Callback):
    """Prints what a trainer reports."""

    def reported(self, trainer: Trainer, line: str) -> None:
        say(line)


def choose_threads(values: Mapping[str, Any], corpus: Corpus) -> None:
    """Compute with the number of threads that a run limited by seconds would choose now."""
    keys = shape_keys(*SIZE_FOR_THREADS) | EAGER | {"training.max_seconds": 1.0}
    configs = built(values, corpus, keys)
    trainer = configs.trainer
    trainer.callbacks = [Printer()]
    if follows_clock(configs):
        ThreadChoice().choose(trainer)


def measured_shapes(
    values: Mapping[str, Any], corpus: Corpus, seconds: float
) -> list[Shape]:
    """As many shapes, the smallest first, as can be measured in a share of a ladder's time."""
    shapes = list[Shape]()
    began = time.monotonic()
    spent = 0.0
    last = 0.0  # seconds; the next size may take twice as long

    for d_model, n_layers in SIZES:
        may_stop = len(shapes) >= FEWEST_SHAPES
        if may_stop and spent + 2 * last > SHARE_TO_MEASURE * seconds:
            break
        try:
            shape = measured(values, corpus, shape_keys(d_model, n_layers), **EAGER)
        except (ConfigError, RuntimeError, MemoryError) as error:
            is_too_large = isinstance(error, ConfigError) or is_out_of_memory(error)
            if not (may_stop and is_too_large):
                raise
            say(f"{n_layers} x {d_model} and larger sizes do not fit into memory")
            break
        last = time.monotonic() - began - spent
        spent += last
        shapes.append(shape)
        say(
            f"{shape.name}: {shape.n_weights:,} weights, {shape.chars_per_second:,.0f} chars/s"
        )

    return shapes


def rungs(
    shapes: Sequence[Shape],
    seconds: float,
    values: Mapping[str, Any],
    n_read: int,
    spent: float = 0.0,
) -> list[Rung]:
    """The rungs, the cheapest first, that fit into `seconds`, of which `spent` seconds have passed.
    Some are kept if a model is compiled afterwards. An evaluation reads `n_read` characters.

    All sizes take the same time. They are the largest whose longest rung trains on a character per
    weight, or else the smallest. If not even the shortest ladder fits, it takes longer, and a line
    says so.
    """
    chars_per_step = values["training.chars_per_step"]
    to_compile = SECONDS_TO_COMPILE if is_compiled(values) else 0.0
    seconds_per_size = (seconds - spent - min(to_compile, seconds / 4)) / N_SIZES

    for fewest, (n_lengths, ratio) in product(FEWEST_STEPS, SPACINGS):
        shares = [ratio**i for i in range(n_lengths)]
        for first in reversed(range(len(shapes) - N_SIZES + 1)):
            ladder = list[Rung]()
            for shape in shapes[first : first + N_SIZES]:
                around = seconds_around(shape, n_read)
                left = seconds_per_size - n_lengths * around
                n_steps = left * shape.chars_per_second / chars_per_step / sum(shares)
                lengths = [int(n_steps * share) * chars_per_step for share in shares]
                ladder += [
                    Rung(shape, n, n / shape.chars_per_second + around) for n in lengths
                ]
            longest = ladder[-1]
            shortest = min(rung.n_chars for rung in ladder)
            is_large_enough = first == 0 or longest.n_chars >= longest.shape.n_weights
            if shortest >= fewest * chars_per_step and is_large_enough:
                return sorted(ladder, key=lambda rung: rung.seconds)

    n_chars = (fewest + 1) * chars_per_step * sum(shares)
    needed = 0.0

    for shape in shapes[:N_SIZES]:
        cost = (
            n_lengths * seconds_around(shape, n_read) + n_chars / shape.chars_per_second
        )
        needed = max(needed, spent + N_SIZES * cost)

    needed = min(needed + to_compile, needed / 0.75)
    needed = math.ceil(max(needed, seconds + 1))
    say(
        f"the shortest ladder takes about {needed} s at these speeds, not {seconds:.0f} s"
    )
    return rungs(shapes, needed, values, n_read, spent)


def seconds_around(shape: Shape, n_read: int) -> float:
    """The time of a rung beside its training: for building the model and one evaluation."""
    return SECONDS_TO_BUILD + COST_OF_READING * n_read / shape.chars_per_second


def climb(
    values: Mapping[str, Any], corpus: Corpus, ladder: Sequence[Rung]
) -> tuple[list[Run], list[Row]]:
    """Train all rungs; leave out the longest ones if the others take much longer than expected.

    Returns the runs, and the rows of the last one.
    """
    began = time.monotonic()
    expected = sum(rung.seconds for rung in ladder)
    runs = list[Run]()
    rows = list[Row]()

    for seed, rung in enumerate(ladder, start=values["seed"]):
        if (
            len(runs) >= MIN_RUNS
            and time.monotonic() - began + rung.seconds > LATE * expected
        ):
            break
        n_evaluations = EVALUATIONS if rung is ladder[-1] else 1
        keys = rung.shape.keys | {"seed": seed, "training.evaluations": n_evaluations}
        run, rows = train(values, corpus, keys, rung.n_chars)
        runs.append(run)
        say(
            f"{rung.shape.name}, {rung.n_chars / 1e6:.2f} M characters: loss.valid {run.loss:.4f}"
        )

    return runs, rows


def train(
    values: Mapping[str, Any], corpus: Corpus, keys: Mapping[str, Any], n_chars: int
) -> tuple[Run, list[Row]]:
    """Train a rung. Raises HealthCheckError if it diverges."""
    configs = built(values, corpus, {**keys, "training.max_chars": n_chars, **EAGER})
    losses = simple_losses(configs)
    trainer = configs.trainer
    collector = RowCollector()
    trainer.callbacks = [HealthChecks(losses["unigram"]), collector]
    trainer.train()
    loss = collector.rows[-1]["loss.valid"]

    if loss > DIVERGED * losses["uniform"]:
        raise HealthCheckError(
            f"loss.valid is {loss:,.2f} after {n_chars:,} characters, and guessing gives"
            f" {losses['uniform']:.2f}: the training diverges: lower training.learning_rate and"
            " training.muon_learning_rate, or raise training.warmup"
        )

    return Run(n_weights(trainer.model), trainer.chars, loss), collector.rows


class RowCollector(Callback):
    """Keeps the rows of all evaluations."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def evaluated(self, trainer: Trainer, row: Row, best: Weights | None) -> None:
        self.rows.append(row)
