"""Callbacks of the training loop: reference losses, compiling, threads, the any-order bound, knobs
and samples."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import nn

from data.bound import bound_masks
from data.masking import n_masked_in
from data.protocol import ValidationSet
from data.reference_process import References
from data.vocabulary import Vocabulary
from runs.callbacks import Callback
from runs.curves import save_curves
from runs.errors import InputError
from runs.files import reporting_os_errors
from runs.knobs import Knobs, knobs_of
from runs.run_folder import RunFolder
from training.compilation import Compiled, Report, without_side_effects
from training.evaluation import Evaluation, Outcomes, evaluating, masked_outcomes, per_window
from training.health_checks import check_for_leak
from training.schedule import Stage, stage_at
from training.step import TrainingStep

SECONDS_AT_END = 30.0  # at most, to wait for the counting loss after the last step
TURNS = 5
CLEARLY_FASTER = 0.9  # of the time of a step; otherwise the number of threads stays
SEED = 0  # masks the same characters every time, so that samples can be compared


class ReferenceLosses(Callback):
    """Compares a run with its reference losses, reports them, and draws its curves beside them."""

    def __init__(
        self, run: RunFolder, references: References, predicted: Sequence[Mapping[str, float]] = ()
    ):
        self.run, self.references, self.predicted = run, references, predicted
        self.announced: bool | None = None  # whether all losses were known at the last announcement

    def begin(self, trainer: Any) -> None:
        self._announce(trainer)

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        floors = self.references.floor()  # of the windows
        if floors is not None:
            floor = self.references.losses["floor"]
            row |= {"floor.valid": floor, "excess": evaluation.loss - floor}
            check_for_leak(evaluation.window_losses, floors)

    def evaluated(
        self, trainer: Any, row: Mapping[str, Any], best: Mapping[str, Any] | None
    ) -> None:
        self._announce(trainer)

    def end(self, trainer: Any) -> None:
        if trainer.progress() >= 1:
            self._announce(trainer, wait_seconds=SECONDS_AT_END)
        with reporting_os_errors(trainer.report, self.run.curves_path.name):
            title = f"{trainer.evaluator.corpus}, {self.run.path.name}"
            save_curves(
                self.run.curves_path,
                self.run.metrics(),
                self.references.losses,
                title,
                self.predicted,
            )

    def _announce(self, trainer: Any, wait_seconds: float = 0.0) -> None:
        """Report and save the losses: once at the beginning, and once when all of them are known."""
        is_complete = self.references.is_complete(wait_seconds)
        if is_complete == self.announced:
            return
        self.announced = is_complete
        losses = ", ".join(f"{name} {loss:.2f}" for name, loss in self.references.losses.items())
        trainer.report(f"reference losses: {losses} ({self.references.meaning(is_complete)})")
        with reporting_os_errors(trainer.report, self.run.reference_lines_path.name):
            self.run.save_reference_lines(self.references.losses)


class Compiler(Callback):
    """Has an objective compiled before the first step."""

    def __init__(self, compiled: Compiled, around: Callable[[Report], AbstractContextManager[Any]]):
        self.compiled, self.around = compiled, around  # compiling happens inside of `around`

    def begin(self, trainer: Any) -> None:
        if trainer.n_evaluations < trainer.schedule.evaluations:
            step, stages, report = trainer.training_step, trainer.schedule.stages, trainer.report
            self.compiled.compile(step, stages, report, self.around(report))


class ThreadChoice(Callback):
    """Computes with one thread or with all of them, whichever is faster now.

    The threads of a step wait for each other at every operation. Beside another program that keeps
    a core busy, all wait for the thread on this core, and one thread is faster.
    """

    def __init__(self) -> None:
        self.most = torch.get_num_threads()

    def begin(self, trainer: Any) -> None:
        self.choose(trainer)

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        row["threads"] = torch.get_num_threads()

    def evaluated(
        self, trainer: Any, row: Mapping[str, Any], best: Mapping[str, Any] | None
    ) -> None:
        self.choose(trainer)

    def choose(self, trainer: Any) -> None:
        """Measure both, and change the number if the other one is clearly faster; the clock does
        not run."""
        if trainer.progress() >= 1:
            return
        now = torch.get_num_threads()
        other = self.most if now == 1 else 1
        stage = stage_at(trainer.schedule.stages, trainer.progress(), trainer.step)
        seconds = seconds_per_gradient(trainer.training_step, stage, (now, other))
        faster = other if seconds[other] < CLEARLY_FASTER * seconds[now] else now
        torch.set_num_threads(faster)
        if faster != now:
            threads = "1 thread is" if faster == 1 else f"{faster} threads are"
            trainer.report(f"{threads} faster now than {now} (training.threads=N fixes the number)")


def seconds_per_gradient(
    step: TrainingStep, stage: Stage, numbers: Sequence[int]
) -> dict[int, float]:
    """The mean time of computing a gradient with each number of threads."""
    with without_side_effects(step):
        batch = step.draw(stage)[0]
        counts = step.update.objective.counts([batch])

        def call() -> None:
            step.update.forward_backward(batch, counts)
            step.update.model.zero_grad()

        return seconds_by_threads(call, numbers)


def seconds_by_threads(call: Callable[[], Any], numbers: Sequence[int]) -> dict[int, float]:
    """The mean time of a call with each number of threads, which take turns."""
    seconds = dict.fromkeys(numbers, 0.0)
    for turn, n in product(range(TURNS + 1), numbers):
        torch.set_num_threads(n)
        began = time.perf_counter()
        call()
        if turn:  # the first one starts threads
            seconds[n] += (time.perf_counter() - began) / TURNS
    return seconds


class WeightNorm(Callback):
    """Adds the root mean square of all weights except tables: one number that shows whether they
    grow."""

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        row["weight_norm"] = self.norm(trainer.model)

    @torch.no_grad()
    def norm(self, model: nn.Module) -> float:
        weights = dense_weights(model)
        total: Any = torch.nn.utils.get_total_norm(weights)
        # of sharded weights
        total = total.full_tensor() if hasattr(total, "full_tensor") else total
        return total.item() / sum(weight.numel() for weight in weights) ** 0.5


def dense_weights(model: nn.Module) -> list[nn.Parameter]:
    """All weights except those of tables, of which a step uses few."""
    tables = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.EmbeddingBag)
    }
    return [weight for weight in model.parameters() if id(weight) not in tables]


class PerCharacter(Callback):
    """Adds the loss per character, which makes runs with different tokens comparable."""

    def __init__(self, lengths: torch.Tensor):
        """`lengths` `[n_tokens]` are the numbers of characters that begin in each token."""
        self.lengths = lengths

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        row |= per_character(evaluation, trainer.evaluator.validation, self.lengths)


def per_character(
    evaluation: Evaluation, validation: ValidationSet, lengths: torch.Tensor | None
) -> dict[str, float]:
    """The loss per character that begins in a masked token; empty if tokens are characters, or if
    none begins."""
    n_chars = (
        0 if lengths is None else int(lengths[validation.windows[validation.masked].cpu()].sum())
    )
    loss = float(evaluation.window_losses.sum()) / max(n_chars, 1)
    return (
        {"loss.valid_per_character": loss, "bits_per_character": loss / math.log(2)}
        if n_chars
        else {}
    )


class AnyOrderBound(Callback):
    """Adds to each row how well the model writes; `loss.bound` then decides which weights are the
    best."""

    name = "bound"  # tells a checkpoint whose best loss is a bound

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        evaluator = trainer.evaluator
        windows, masks = evaluator.validation.windows, bound_masks(evaluator.validation, rounds=1)
        bound = any_order_bound(
            trainer.model, windows, masks, evaluator.mask_token, evaluator.outcomes_of
        )
        row["loss.bound"] = bound.mean().item()


def any_order_bound(
    model: nn.Module,
    windows: torch.Tensor,
    masks: torch.Tensor,
    mask_token: int,
    outcomes_of: Callable[..., Outcomes] = masked_outcomes,
) -> torch.Tensor:
    """How well a model that writes in random order predicts windows: `[n_windows]` nats per token,
    an upper bound.

    It is estimated with `masks` `[n_rounds, n_windows, seq_len]` (see `data.bound`) of the true
    `windows` `[n_windows, seq_len]`. If L tokens are written one at a time in random order, a
    window x has at least the probability P(x) with

        -log P(x) <= mean over orders o of the sum of -log p(x_o(i) | x_o(1) ... x_o(i-1)) over i
                   = L * mean cross-entropy at n masked positions, n uniform in 1 ... L, the positions random

    (Uria et al. 2014; Hoogeboom et al. 2022). It is also the bound of masked diffusion (Sahoo et
    al. 2024). The mean over exactly n positions varies less than a sum over positions masked
    independently, divided by their expected number (Nie et al. 2025).
    """
    repeated, masked = windows.repeat(len(masks), 1), masks.flatten(0, 1)
    losses, _ = per_window(outcomes_of(model, repeated, masked, mask_token), masked)
    return (losses / masked.sum(1).clamp(min=1).cpu()).view(len(masks), -1).mean(0)


class KnobPanel(Callback):
    """Applies the values of the knobs that a user has requested."""

    name = "knobs"

    def __init__(self) -> None:
        self.knobs = Knobs()
        self.requested: Mapping[str, Any] | None = None  # the last request
        self.is_changed_by_hand = False

    def adjust(self, trainer: Any, stage: Stage, factor: float) -> tuple[Stage, float]:
        requested = self.request(trainer)
        if requested is not None and requested != self.requested:
            self.requested = requested
            try:
                self._turn(trainer, knobs_of(requested))
            except InputError as error:
                trainer.report(f"not changed: {error}")
        rate = self.knobs.masking_prob
        return stage if rate is None else replace(
            stage, masking_prob=rate
        ), factor * self.knobs.learning_rate_factor

    def request(self, trainer: Any) -> Mapping[str, Any] | None:
        """The values that a user wants, if any."""
        wanted = (callback.wanted_knobs() for callback in trainer.callbacks)
        return next((values for values in wanted if values is not None), None)

    def _turn(self, trainer: Any, knobs: Knobs) -> None:
        if knobs == self.knobs:
            return
        before, after = asdict(self.knobs), asdict(knobs)
        self.knobs, self.is_changed_by_hand = knobs, True
        trainer.report(f"changed by hand at step {trainer.step:,}: {knobs}")
        event = {"event": "changed by hand", **trainer.position(), "before": before, "after": after}
        trainer.call("changed", event)

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        if self.is_changed_by_hand:
            row |= {
                "changed_by_hand": True,
                "learning_rate_factor": self.knobs.learning_rate_factor,
            }
            row["masking_prob"] = self.knobs.masking_prob or row["masking_prob"]

    def state_dict(self) -> dict[str, Any]:
        return {"knobs": asdict(self.knobs), "is_changed_by_hand": self.is_changed_by_hand}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.knobs, self.requested = knobs_of(state["knobs"]), state["knobs"]
        self.is_changed_by_hand = state["is_changed_by_hand"]


@dataclass(frozen=True)
class Guess:
    """A token of a sample, which the model has seen or guessed."""

    truth: str
    guess: str | None = None  # None: it was visible

    @property
    def is_correct(self) -> bool:
        return self.guess == self.truth


class Samples(Callback):
    """Shows after some evaluations the model's guesses for masked prompts."""

    def __init__(self, prompts: Sequence[str], vocabulary: Vocabulary, every_evaluations: int):
        self.prompts, self.vocabulary, self.every_evaluations = (
            prompts,
            vocabulary,
            every_evaluations,
        )

    def evaluated(
        self, trainer: Any, row: Mapping[str, Any], best: Mapping[str, Any] | None
    ) -> None:
        if trainer.n_evaluations % self.every_evaluations == 0:
            trainer.call(
                "sampled", sample(trainer.model, self.prompts, self.vocabulary, row["masking_prob"])
            )


def sample(
    model: nn.Module, prompts: Sequence[str], vocabulary: Vocabulary, masking_prob: float
) -> list[list[Guess]]:
    """Replace a share of every prompt's tokens by `[MASK]` and let the model guess them.

    Dropout is off, and the RNG states of training do not change. Raises ValueError for a prompt
    with characters that the vocabulary does not have.
    """
    generator = torch.Generator().manual_seed(SEED)
    device = next(model.parameters()).device
    samples = []
    for prompt in prompts:
        ids = vocabulary.encode(prompt)
        order = torch.rand(len(ids), generator=generator).argsort()
        order = order[ids[order] < vocabulary.n_ordinary]  # [UNK] is not a target
        masked = order[: n_masked_in(len(ids), masking_prob)].sort().values
        inputs = ids.index_fill(0, masked, vocabulary.mask_token)
        with evaluating(model, device):
            logits = model(inputs[None].to(device), masked.to(device))
        guesses = logits[:, : vocabulary.n_ordinary].argmax(-1).cpu()
        guess_at = {
            int(i): vocabulary.decode([guess]) for i, guess in zip(masked, guesses, strict=True)
        }
        parts = (
            prompt if vocabulary.is_characters else [vocabulary.decode([i]) for i in ids.tolist()]
        )
        samples.append([Guess(truth, guess_at.get(i)) for i, truth in enumerate(parts)])
    return samples
