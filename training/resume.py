"""Starts a run, and resumes it after an interruption, bit for bit."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from data.corpus import Corpus
from runs.files import write_json
from runs.run_folder import RunFolder, RunFolderError
from runs.schema import SIZES, checked, is_number, is_size
from training.callbacks.recorder import Recorder
from training.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_last,
    put_weights,
)
from training.loop import SAVED, Trainer
from training.schedule import Schedule


def is_loss(value: Any) -> bool:
    return is_number(value) or value == math.inf  # infinite before the first evaluation


def is_scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 0


STATE = {  # of a checkpoint: see `runs.schema`; loading the rest checks it
    **dict.fromkeys(("step", "chars", "n_evaluations"), is_size),
    **dict.fromkeys(("seconds", "wall_seconds"), float),
    "best_loss": is_loss,
    "evaluated_at": {"step": is_size, "chars": is_size, "seconds": float},
    "sums": {str: is_scalar},
    "callbacks": {"run": {"environment": {str: (str, int, bool)}, "sizes": SIZES}},
    "training_step": dict,
}


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
    corpus = data.loaded
    run.save_corpus(corpus.name, corpus.sha256, corpus.contents)
    write_json(run.vocabulary_path, data.vocabulary.description())


def restore(run: RunFolder, trainer: Trainer) -> Checkpoint:
    """Load the run's last whole checkpoint into a new trainer. Raises CheckpointError."""
    checkpoint = load_last(run.checkpoints)
    checked(checkpoint.state, STATE, str(checkpoint.path), CheckpointError)
    put_weights(trainer.load_weights, checkpoint)

    try:  # without communication, whose errors are others
        put_state(trainer, checkpoint.state)
        for optimizer in trainer.optimizers:
            check_shapes(optimizer)
    # nested content is wrong
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        message = f"{checkpoint.path} is not a state of this run ({error})"
        raise CheckpointError(message) from error

    return checkpoint


def put_state(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Give a new trainer the state that `Trainer.state_dict` returned."""
    for name in SAVED:
        setattr(trainer, name, state[name])

    device = trainer.training_step.update.device
    trainer.sums = {
        name: total.to(device, copy=True) for name, total in state["sums"].items()
    }
    trainer.clock.before = state["seconds"]
    trainer.training_step.load_state_dict(state["training_step"])

    saved = state["callbacks"]
    names = {callback.name for callback in trainer.callbacks}

    for callback in trainer.callbacks:
        if callback.name in saved:
            callback.load_state_dict(saved[callback.name])

    if ("bound" in names) != ("bound" in saved):
        trainer.best_loss = math.inf  # a `loss.bound` and a `loss.valid` do not compare

    # With a longer budget the evaluations are farther apart, so fewer of them are done.
    n_due = trainer.schedule.evaluations_due(trainer.progress())
    if (
        trainer.step > trainer.evaluated_at["step"]
    ):  # at least the last one is still to come
        n_due = min(n_due, trainer.schedule.evaluations - 1)
    trainer.n_evaluations = min(trainer.n_evaluations, n_due)


def check_shapes(optimizer: Optimizer) -> None:
    """Raise ValueError if the state of an optimizer has wrong shapes, which PyTorch does not check."""
    for parameter, values in optimizer.state.items():
        allowed = (parameter.shape, parameter.shape[:1], torch.Size())
        for value in values.values():
            if isinstance(value, torch.Tensor) and value.shape not in allowed:
                raise ValueError(
                    "an optimizer's state does not have the shape of its parameter"
                )


def resume(
    run: RunFolder, trainer: Trainer, values: Mapping[str, Any], corpus: Corpus
) -> None:
    """Load the run's last whole checkpoint into a new trainer, and cut the run's files back to that
    moment.

    Raises RunFolderError if the text has changed, the files are damaged, or the budget is spent;
    CheckpointError if no checkpoint is whole.
    """
    if run.corpus()["sha256"] != corpus.sha256:  # the text may have moved
        raise RunFolderError(
            f"{run.path}: its corpus {corpus.name} has changed since the run was trained on it"
        )

    checkpoint = restore(run, trainer)
    if checkpoint.path.stem == "previous":
        print(
            "warning: the last checkpoint is damaged or missing; resuming from the one before it",
            flush=True,
        )
    # not killed after its last step
    elif trainer.progress() >= 1 and run.status()["status"] == "completed":
        raise RunFolderError(
            f"{run.path} has spent its budget: give it a longer one, such as"
            f" {longer_budget(trainer.schedule)}"
        )

    saved = checkpoint.state["callbacks"]["run"]
    run.truncate(saved["sizes"])
    # of a process that was killed while it wrote; safetensors names its own .tmp and letters
    for leftover in run.checkpoints.glob("*.tmp*"):
        leftover.unlink()

    record(run, trainer.step, values)
    run.save_corpus(values["data.corpus"], corpus.sha256, corpus.contents)
    print(
        f"resuming at step {trainer.step:,}, after {trainer.clock.seconds:.0f} s of training",
        flush=True,
    )

    for callback in trainer.callbacks:
        if isinstance(callback, Recorder):
            warn_of_differences(saved["environment"], callback.environment)


def longer_budget(schedule: Schedule) -> str:
    """A key with twice the budget that a run has spent."""
    limits = {
        "max_steps": schedule.max_steps,
        "max_chars": schedule.max_chars,
        "max_seconds": schedule.max_seconds,
    }
    name, limit = next(
        (name, limit) for name, limit in limits.items() if limit is not None
    )
    return f"training.{name}={2 * limit:g}"


def record(run: RunFolder, step: int, values: Mapping[str, Any]) -> None:
    """Write the new values of the keys, and an event with those that have changed."""
    before = run.config()
    changed = {}
    for key, value in values.items():
        # A key that the run's config lacks is newer than the run, which was trained with the key's
        # default.
        if key in before and before[key] != value:
            changed[key] = [before[key], value]

    run.append_event({"event": "resumed", "step": step, "changed": changed})
    run.save_config(dict(values))


def warn_of_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Print how the environment of a run differs from the one before it was interrupted."""
    differing = []
    for name, value in then.items():
        if now.get(name) != value:
            differing.append(f"{name} was {value}, is {now.get(name)}")
    if differing:
        print(
            f"warning: {'; '.join(differing)}: the run will not continue bit for bit",
            flush=True,
        )
