"""How a run begins, and how it goes on after an interruption: in its folder, under its uuid, to the digit."""

from collections.abc import Iterable, Mapping
from typing import Any

from data.corpus import Corpus
from data.vocabulary import Vocabulary
from runs.run_folder import RunFolder, RunFolderError
from training.checkpoint import CheckpointError, load_last, put_weights
from training.loop import Trainer
from training.state import environment, restore


def begin(
    run: RunFolder,
    values: Mapping[str, Any],
    corpus: Corpus,
    vocabulary: Vocabulary,
    comment: str,
    overridden: Iterable[str],
) -> None:
    """Write down what a run is made of."""
    run.save_about(values["name"], comment, overridden)
    run.save_config(dict(values))
    run.save_corpus(corpus.name, corpus.sha256)
    vocabulary.save(run.vocabulary_path)


def go_on(run: RunFolder, trainer: Trainer, values: Mapping[str, Any], corpus: Corpus) -> None:
    """Give a new trainer the state of the run's last whole checkpoint, and cut off what the run wrote after it.

    Raises RunFolderError where the text has changed, or where nothing is left to train, and CheckpointError where no
    checkpoint is whole.
    """
    if run.corpus()["sha256"] != corpus.sha256:
        raise RunFolderError(f"{run.path}: its corpus {corpus.name} has changed since it was trained on")
    found = load_last(run.checkpoints)
    state = found.state
    put_weights(trainer.model, found.weights, run.checkpoints / f"{found.name}.safetensors")
    try:
        restore(trainer, state)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:  # a right hash, and another program's content
        raise CheckpointError(f"{run.checkpoints} does not hold a state of this run ({error})") from error
    if trainer.progress() >= 1 and run.status()["status"] == "completed":  # else it was killed after its last step
        limits = [key for key in ("max_steps", "max_chars", "max_seconds") if values.get(f"training.{key}") is not None]
        longer = f"training.{limits[0]}={2 * values[f'training.{limits[0]}']:g}"
        raise RunFolderError(f"{run.path} has spent its budget: give it a longer one, such as {longer}")
    run.cut(state["sizes"])
    if found.name == "previous":
        print("warning: the last checkpoint is damaged; going on from the one before it", flush=True)
    before = run.config()
    # A key that the run's config does not have yet is younger than it: what it was trained with is the default.
    changed = {key: [before[key], value] for key, value in values.items() if key in before and before[key] != value}
    run.append_event({"event": "resumed", "step": trainer.step, "changed": changed})
    run.save_config(dict(values))
    print(f"going on from step {trainer.step:,}, after {trainer.clock.seconds:.0f} s of training", flush=True)
    here = environment(trainer.device, trainer.compile)
    differing = [
        f"{name} was {was}, is {here.get(name)}" for name, was in state["environment"].items() if here.get(name) != was
    ]
    if differing:
        print(f"warning: {'; '.join(differing)}: what follows will not be the same to the digit", flush=True)
