"""Starts a run, records it in its folder, and resumes it there after an interruption, bit for bit."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from data.corpus import Corpus
from runs.files import reporting_os_errors, write_json
from runs.run_folder import RunFolder, RunFolderError
from training.callbacks.callback import Callback
from training.checkpoint import (
    Checkpoint,
    CheckpointError,
    Content,
    has_shards,
    load_last,
    put_weights,
    save_last,
)
from training.loop import SAVED, Trainer


def begin(
    run: RunFolder,
    values: Mapping[str, Any],
    data: Any,
    comment: str,
    overridden: Iterable[str],
    torchrun_id: str | None = None,
) -> None:
    """Write the files that describe a new run; `data` is the branch of the config tree."""
    run.save_about(values["name"], comment, overridden, torchrun_id)
    run.save_config(dict(values))
    run.save_corpus(data.loaded.name, data.loaded.sha256)
    write_json(run.vocabulary_path, data.vocabulary.description())


class Recorder(Callback):
    """Writes the rows, the events, the best weights and the checkpoints of a run. A full disk
    delays them."""

    def __init__(self, run: RunFolder, environment: Mapping[str, Any], in_background: bool = False):
        """`environment` holds the versions and settings that an exact resume depends on. With
        `in_background`, a thread writes copies of the weights; training on a CPU would leave it no
        core."""
        self.run, self.environment, self.best_path = (
            run,
            environment,
            run.checkpoints / "best.safetensors",
        )
        # writes the rows that the disk has not taken yet
        self.waiting: deque[Callable[[], None]] = deque()
        self.best: Callable[[Path], None] | None = None  # writes weights that are not yet written
        # the end of the program waits for it
        self.thread = ThreadPoolExecutor(1) if in_background else None
        self.saving: tuple[Future[None], str] | None = None

    def evaluated(
        self, trainer: Any, row: Mapping[str, Any], best: Mapping[str, Any] | None
    ) -> None:
        with reporting_os_errors(trainer.report, "a row; it stays queued"):
            self._write(partial(self.run.append_metrics, dict(row)))
        if best is not None:
            self._finish(trainer.report)
            self.best = self.writer(best, {"step": row["step"], "loss.valid": row["loss.valid"]})
            self._begin(self._save_best, "the best weights; will try again", trainer.report)

    def changed(self, trainer: Any, event: Mapping[str, Any]) -> None:
        with reporting_os_errors(trainer.report, "an event; it stays queued"):
            self._write(partial(self.run.append_event, dict(event)))

    def _write(self, *writes: Callable[[], None]) -> None:
        """Write in order what waits, each row exactly once. If that raises OSError, the rest waits."""
        self.waiting.extend(writes)
        while self.waiting:
            self.waiting[0]()
            self.waiting.popleft()

    def save(
        self, trainer: Any, weights: Mapping[str, Any], state: dict[str, Any], is_last: bool
    ) -> None:
        self._finish(trainer.report)
        what = "the checkpoint; will try again"
        with nullcontext() if is_last else reporting_os_errors(trainer.report, what):
            state["callbacks"]["run"] = self.state_dict()
            write = partial(save_last, self.run.checkpoints, self.writer(weights, state))
            write() if is_last else self._begin(write, what, trainer.report)

    def _begin(self, write: Callable[[], None], what: str, report: Callable[[str], None]) -> None:
        if self.thread:
            self.saving = self.thread.submit(write), what
        else:
            with reporting_os_errors(report, what):
                write()

    def _finish(self, report: Callable[[str], None]) -> None:
        """Wait for the thread, and report if it has failed."""
        if self.saving:
            (future, what), self.saving = self.saving, None
            with reporting_os_errors(report, what):
                future.result()

    def writer(self, weights: Mapping[str, Any], state: dict[str, Any]) -> Callable[[Path], None]:
        """Returns a function that writes a checkpoint with these weights and this state as they are
        now."""
        return Content.of(weights, state).save

    def _save_best(self) -> None:
        if self.best is not None:
            self.best(self.best_path)
            self.best = None

    def state_dict(self) -> dict[str, Any]:
        """The sizes of the run's files, after everything that waits is written. Raises OSError if
        that fails."""
        self._write()
        self._save_best()
        return {"environment": self.environment, "sizes": self.run.sizes()}


def restore(run: RunFolder, trainer: Trainer) -> Checkpoint:
    """Load the run's last whole checkpoint into a new trainer. Raises CheckpointError."""
    # each process copies its rows
    found = load_last(run.checkpoints, mapped=has_shards(trainer.model.parameters()))
    put_weights(trainer.load_weights, found)
    try:  # without communication, whose errors are others
        put_state(trainer, found.state)
        check_shapes(trainer.training_step.update.optimizers)
    # nested content is wrong
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{found.path} is not a state of this run ({error})") from error
    return found


def put_state(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Give a new trainer the state that `Trainer.state_dict` returned."""
    for name in SAVED:
        setattr(trainer, name, state[name])
    if ("bound" in {callback.name for callback in trainer.callbacks}) != (
        "bound" in state["callbacks"]
    ):
        trainer.best_loss = float("inf")  # a `loss.bound` and a `loss.valid` do not compare
    trainer.clock.set(state["seconds"])
    device = trainer.training_step.update.device
    trainer.sums = {name: total.to(device, copy=True) for name, total in state["sums"].items()}
    # With a longer budget the evaluations are farther apart, so fewer of them are done.
    trainer.n_evaluations = min(
        trainer.n_evaluations, trainer.schedule.evaluations_due(trainer.progress())
    )
    if trainer.step > trainer.evaluated_at["step"]:  # at least the last one is still to come
        trainer.n_evaluations = min(trainer.n_evaluations, trainer.schedule.evaluations - 1)
    for callback in (
        callback for callback in trainer.callbacks if callback.name in state["callbacks"]
    ):
        callback.load_state_dict(state["callbacks"][callback.name])
    trainer.training_step.load_state_dict(state["training_step"])


def check_shapes(optimizers: Iterable[Optimizer]) -> None:
    """Raise ValueError if the state of an optimizer has wrong shapes, which PyTorch does not check."""
    for parameter, values in (item for optimizer in optimizers for item in optimizer.state.items()):
        allowed = {parameter.shape, parameter.shape[:1], torch.Size()}
        if (
            not {tensor.shape for tensor in values.values() if isinstance(tensor, torch.Tensor)}
            <= allowed
        ):
            raise ValueError("an optimizer's state does not have the shape of its parameter")


def resume(run: RunFolder, trainer: Trainer, values: Mapping[str, Any], corpus: Corpus) -> None:
    """Load the run's last whole checkpoint into a new trainer, and cut the run's files back to that
    moment.

    Raises RunFolderError if the text has changed, the files are damaged, or the budget is spent;
    CheckpointError if no checkpoint is whole.
    """
    if run.corpus()["sha256"] != corpus.sha256:
        raise RunFolderError(
            f"{run.path}: its corpus {corpus.name} has changed since the run was trained on it"
        )
    found = restore(run, trainer)
    if found.path.stem == "previous":
        print(
            "warning: the last checkpoint is damaged or missing; resuming from the one before it",
            flush=True,
        )
    # not killed after its last step
    elif trainer.progress() >= 1 and run.status()["status"] == "completed":
        limits = (
            (name, getattr(trainer.schedule, name))
            for name in ("max_steps", "max_chars", "max_seconds")
        )
        key, limit = next((name, limit) for name, limit in limits if limit is not None)
        longer = f"training.{key}={2 * limit:g}"
        raise RunFolderError(
            f"{run.path} has spent its budget: give it a longer one, such as {longer}"
        )
    saved = found.state["callbacks"]["run"]
    run.truncate(saved["sizes"])
    for leftover in run.checkpoints.glob("*.tmp"):  # of a process that was killed while it wrote
        leftover.unlink()
    before = run.config()
    # A key that the run's config lacks is newer than the run, which was trained with the key's
    # default.
    changed = {
        key: [before[key], value]
        for key, value in values.items()
        if key in before and before[key] != value
    }
    run.append_event({"event": "resumed", "step": trainer.step, "changed": changed})
    run.save_config(dict(values))
    print(
        f"resuming at step {trainer.step:,}, after {trainer.clock.seconds:.0f} s of training",
        flush=True,
    )
    now = next(
        callback.environment for callback in trainer.callbacks if isinstance(callback, Recorder)
    )
    then = saved["environment"]
    if now["device"] == "cpu":
        then = {"training.precision": "float32"} | then  # what CPUs had before it was recorded
    differing = [
        f"{name} was {was}, is {now.get(name)}"
        for name, was in then.items()
        if now.get(name) != was
    ]
    if differing:
        print(f"warning: {'; '.join(differing)}: the run will not continue bit for bit", flush=True)
