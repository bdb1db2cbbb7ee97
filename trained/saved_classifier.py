"""Classifiers that `finetune.py --save` has written: a folder that predict.py and export.py take in place of a run."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from configs.keys import ConfigError
from data.tasks.task import CHARACTER, PAIR
from runs.run_folder import RunFolder
from trained.classifier import Classifier, scores_of
from trained.examples import token_ids
from trained.load import TOLERANCE, Trained, load_keys, random_ids, untrained
from training.checkpoint import load_checkpoint, put_weights, save_checkpoint

FILE = "classifier.safetensors"
OF_THE_RUN = ("config.yaml", "vocabulary.json", "corpus.json", "about.json")


@dataclass(frozen=True)
class SavedClassifier:
    """A classifier with what it needs to read texts."""

    trained: Trained  # the run that it began with, and the classifier's model
    classifier: Classifier
    task: str
    kind: str  # character, text, pair, or choice
    labels: list[str]
    results: dict[str, Any]  # of the comparison with other models

    def probabilities(self, texts: Sequence[str]) -> list[Tensor]:
        """The probability of each label, `[1, n_labels]` per text or `[length, n_labels]` for labels of characters.

        Pairs are `texts` 0 and 1, 2 and 3, .... Texts are cut to the longest windows of the training.
        """
        ids = token_ids(texts, self.trained)
        found = scores_of(self.classifier, ids).softmax(-1)
        return list(found.split([len(each) for each in ids] if self.kind == CHARACTER else 1))


def check_scores(saved: SavedClassifier, scores_of: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Compare an exported classifier with `saved` on random tokens; later texts are padded.

    `scores_of(ids, mask)` are the scores of texts or characters. Raises RuntimeError if one differs by more than 1e-4.
    """
    for batch, length in ((1, 1), (5, saved.trained.longest)):
        ids = random_ids(saved.trained, batch, length)
        mask = torch.arange(length) < torch.linspace(length, 1, batch).int()[:, None]
        ids[~mask] = saved.trained.vocabulary.padding_token
        with torch.inference_mode():
            differences = (scores_of(ids, mask) - saved.classifier(ids, mask)).abs()
        difference = (differences[mask] if saved.kind == CHARACTER else differences).max().item()
        if difference > TOLERANCE:
            raise RuntimeError(f"the scores of the exported classifier differ by {difference:.1e}: please report this")


def check_not_of_pairs(saved: SavedClassifier) -> None:
    """Raises ConfigError for a classifier of pairs, which reads two texts apart."""
    if saved.kind == PAIR:
        raise ConfigError("a classifier of pairs of texts cannot be exported: use it with predict.py")


def is_classifier(folder: Path) -> bool:
    return (folder / FILE).is_file()


def check_new(folder: Path) -> None:
    """Raises ConfigError if a classifier cannot be saved in `folder`."""
    if not folder.name:
        raise ConfigError(f"--save {str(folder)!r} names no new folder: give its path")
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists already: choose another folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create {folder.parent} ({error.strerror}): choose another folder") from error


def save(folder: Path, saved: SavedClassifier) -> None:
    """Write a new folder, complete or not at all. Raises OSError."""
    with TemporaryDirectory(prefix=".classifier-", dir=folder.parent) as temporary:
        part = Path(temporary) / folder.name
        part.mkdir()
        for name in OF_THE_RUN:
            shutil.copy(saved.trained.run.path / name, part)
        facts = {"task": saved.task, "kind": saved.kind, "labels": saved.labels, "results": saved.results}
        save_checkpoint(part / FILE, saved.classifier.state_dict(), facts)
        part.rename(folder)


def load_classifier(folder: Path) -> SavedClassifier:
    """Load what `save` wrote. Raises InputError if a file is missing or damaged."""
    run = RunFolder(folder.resolve())
    values, vocabulary, trained_on = load_keys(run, "cpu")
    found = load_checkpoint(run.path / FILE)
    model: Any = untrained(values, vocabulary)
    facts = found.state
    classifier = Classifier(model, len(facts["labels"]), facts["kind"]).eval()
    put_weights(classifier.load_state_dict, found)
    trained = Trained(run, values, trained_on, model, vocabulary)
    return SavedClassifier(trained, classifier, **{name: facts[name] for name in ("task", "kind", "labels", "results")})
