"""Keeps the time of evaluations small, and promises it before the first step."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from data.protocol import evenly_spaced
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation, evaluate
from training.loop import Trainer
from training.schedule import Schedule, stage_at

SHARE = 0.1  # of the time of the training, for all evaluations together
# evaluated in the time of training on one: a gradient takes two passes more, but is compiled
TOKENS_PER_TRAINED = 2
FEWEST = 16  # windows, a power of two: with fewer, the loss says little
PROBE = 16  # windows whose evaluation is timed


class EvaluationBudget(Callback):
    """Has evaluations read fewer windows if all of them would take more than a tenth of the time.

    The number is a power of two, so that runs on the same machine read the same windows. It follows
    the clock if only seconds limit the run. A run that steps or characters limit repeats bit for
    bit, so there it follows the number of tokens; and one text keeps all windows.
    """

    name = "evaluation_budget"

    def __init__(self, more: Sequence[Callback] = ()):
        """`more` are callbacks that evaluate windows too."""
        self.more = more
        self.n_windows = 0  # that evaluations read; 0: not decided yet
        self.is_cut = False  # whether these are not all windows
        self.promised = 0.0  # seconds, of all evaluations to come
        self.spent = 0.0

    def begin(self, trainer: Trainer) -> None:
        evaluator = trainer.evaluator
        n_all = evaluator.validation.n_windows
        per_window = self.agreed(self.seconds_per_window(trainer))
        if not self.n_windows:
            wanted = self.affordable(trainer, per_window)
            self.n_windows = power_of_two(wanted) if wanted < n_all else n_all
        kept = evenly_spaced(n_all, self.n_windows)
        self.n_windows = len(kept)
        trainer.evaluator = replace(
            evaluator, validation=evaluator.validation.take(kept)
        )
        self.promised = per_window * self.n_windows
        n = trainer.schedule.evaluations - trainer.n_evaluations
        line = f"evaluations ({n}) take about {self.promised:,.1f} s in all"
        max_seconds = trainer.schedule.max_seconds
        if max_seconds and by_time_only(trainer.schedule):
            total = max_seconds - trainer.clock.seconds + self.promised
            line += f", the run {total:,.0f} s"
        trainer.report(line)
        self.is_cut = self.n_windows < n_all
        if self.is_cut:
            trainer.report(
                f"evaluations read {self.n_windows} of {n_all:,} windows, because all would take"
                f" more than {SHARE:.0%} of the time; ± is the standard error over those read,"
                " and evaluate.py reads all"
            )

    def seconds_per_window(self, trainer: Trainer) -> float:
        """The time of a window in all evaluations to come, measured with some windows."""
        evaluator = trainer.evaluator
        schedule = trainer.schedule
        rows = evenly_spaced(evaluator.validation.n_windows, PROBE)
        probe = replace(evaluator, validation=evaluator.validation.take(rows))
        first = trainer.n_evaluations + 1
        lengths = [
            stage_at(schedule.stages, i / schedule.evaluations).seq_len
            for i in range(first, schedule.evaluations + 1)
        ]
        trainer.evaluator = probe
        seconds = {}
        for seq_len in sorted({*lengths}):
            self.evaluate_probe(trainer, seq_len)  # warms up
            began = time.perf_counter()
            self.evaluate_probe(trainer, seq_len)
            seconds[seq_len] = time.perf_counter() - began
        trainer.evaluator = evaluator
        return sum(seconds[seq_len] for seq_len in lengths) / len(rows)

    def evaluate_probe(self, trainer: Trainer, seq_len: int) -> None:
        probe = trainer.evaluator
        evaluation = evaluate(
            probe.model, probe.validation, probe.mask_token, seq_len, probe.outcomes_of
        )
        for callback in self.more:
            callback.measured(trainer, {}, evaluation)

    def affordable(self, trainer: Trainer, per_window: float) -> int:
        """The number of windows whose evaluations take a tenth of the training."""
        schedule = trainer.schedule
        validation = trainer.evaluator.validation
        if schedule.max_seconds and by_time_only(schedule):
            return int(SHARE * schedule.max_seconds / max(per_window, 1e-9))
        if validation.attention_mask is None or schedule.max_steps == 0:
            return validation.n_windows
        per_step = trainer.training_step.chars_per_step
        budgets = [schedule.max_chars, (schedule.max_steps or 0) * per_step]
        n_trained = min(budget for budget in budgets if budget)
        n_tokens = SHARE * TOKENS_PER_TRAINED * n_trained / schedule.evaluations
        # also cut to the training length, and by each of the callbacks
        n_passes = 2 + len(self.more)
        return int(n_tokens / n_passes / validation.windows.shape[1])

    def agreed(self, seconds: float) -> float:
        """The time that decides; several processes share one."""
        return seconds

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        if self.is_cut:
            row["validation_windows"] = self.n_windows
        began = trainer.began + trainer.wall_seconds  # of the evaluation
        self.spent += time.monotonic() - began

    def end(self, trainer: Trainer) -> None:
        if self.spent:
            trainer.report(
                f"evaluations took {self.spent:,.1f} s (promised: {self.promised:,.1f} s)"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"n_windows": self.n_windows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n_windows = state["n_windows"]


def by_time_only(schedule: Schedule) -> bool:
    """Whether only seconds limit a run, which then does not repeat bit for bit."""
    return not (schedule.max_steps or schedule.max_chars)


def power_of_two(n: int) -> int:
    """The largest power of two up to `n`, and at least FEWEST."""
    return 1 << (max(n, FEWEST).bit_length() - 1)
