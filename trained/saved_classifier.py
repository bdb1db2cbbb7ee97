"""Classifiers that `finetune.py --save` has written: a folder that predict.py and export.py take in
place of a run."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torch import Tensor

from configs import hugging_face
from configs.keys import ConfigError
from data.tasks.task import CHOICE, LABELS, NUMBER, OF_TOKENS, PAIR, TEXT
from runs.run_folder import RunFolder
from runs.schema import MISSING, checked, is_size, matches
from trained.classifier import Classifier, scores_of
from trained.examples import reading_of
from trained.load import CLASSIFIER, Trained, load_initial
from training.checkpoint import CheckpointError, Content, load_checkpoint, put_weights

if TYPE_CHECKING:
    from trained.ngrams import Ngrams

OF_THE_RUN = ("config.yaml", "vocabulary.json", "corpus.json", "about.json")


def is_label(value: Any) -> bool:
    """Whether a value is a text that can be written in UTF-8, which lone surrogates cannot."""
    return isinstance(value, str) and value == value.encode("utf-8", "ignore").decode()


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def is_weight(value: Any) -> bool:
    return matches(value, [float]) and len(value) == 2


SCORES = {str: {"mean": float, "margin": (float, None)}}  # by method
NGRAMS = {
    "names": [str],
    "idf": is_tensor,
    "weight": is_tensor,
    "bias": is_tensor,
    "own": is_weight,
    "model": is_weight,  # of its readings beside those of n-grams
}
FACTS = {
    "task": is_label,
    "kind": lambda kind: kind in (*OF_TOKENS, TEXT, PAIR, CHOICE, LABELS, NUMBER),
    "labels": lambda labels: labels and matches(labels, [is_label]),
    "ngrams": (NGRAMS, None, MISSING),
    "results": {
        "labelled": is_size,
        "test": is_size,
        "measure": (str, MISSING),  # accuracy
        "draws": is_size,
        "scores": SCORES,
        "first draw": float,
        "ceiling": (float, MISSING),
    },
}


@dataclass(frozen=True)
class SavedClassifier(Trained):
    """A classifier, with the run that it began with and the fine-tuned model."""

    classifier: Classifier
    task: str
    kind: str  # of its task
    labels: list[str]
    results: dict[str, Any]  # of the comparison with other models
    # the n-grams, and the weight of the model beside them
    weight: Any = None  # a Weight
    ngrams: "Ngrams | None" = None

    def scores(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The scores of texts `[batch, n_labels]`, or of characters `[batch, length, n_labels]`."""
        return self.classifier(ids, mask)

    def probabilities(self, texts: Sequence[str]) -> list[Tensor]:
        """The probability of each label, `[1, n_labels]` per text or `[length, n_labels]` for
        labels of characters or words; for a number, `[1, 1]`, the number itself.

        Pairs are `texts` 0 and 1, 2 and 3, .... Texts of more than `longest` tokens are read in
        windows, as in training.
        """
        reading = reading_of(texts, self.kind, self)
        scores = reading.of_units(scores_of(self.classifier, reading.ids))
        if self.ngrams is not None:
            of_ngrams = self.ngrams.scores(texts)
            scores = self.ngrams.beside(scores, self.weight, of_ngrams)
        if self.kind == NUMBER:
            return list(scores.split(1))
        if self.kind == LABELS:
            return list(scores.sigmoid().split(1))
        probabilities = scores.softmax(-1)
        if self.kind in OF_TOKENS:
            units = reading.ends or reading.ids
            return list(probabilities.split([len(each) for each in units]))
        return list(probabilities.split(1))


def is_classifier(folder: Path) -> bool:
    # False for a name that is too long for a path
    return os.path.isfile(folder / CLASSIFIER)


def check_new(path: Path, option: str) -> None:
    """Make the folder of the path that an option names. Raise ConfigError if nothing new can be
    made there."""
    if not path.name:
        raise ConfigError(f"{option} names no new file or folder: give its path")
    if os.path.lexists(path):
        raise ConfigError(f"{option}: {path} exists already: choose another path")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # or the result could not be written
        TemporaryDirectory(prefix=f"{path.name}.tmp.", dir=path.parent).cleanup()
    except OSError as error:
        raise ConfigError(
            f"{option}: cannot write to {path.parent} ({error.strerror}): choose another path"
        ) from error


def save(folder: Path, run: RunFolder, classifier: Classifier, **facts: Any) -> None:
    """Write a new folder, complete or not at all. The `facts` are the other fields of
    `SavedClassifier`; `ngrams` is their `state()` and the weight of the `model`. Raises OSError."""
    with TemporaryDirectory(prefix=".classifier-", dir=folder.parent) as temporary:
        part = Path(temporary) / folder.name
        part.mkdir()
        for name in OF_THE_RUN:
            shutil.copy(run.path / name, part)
        for kept in (run.code_path, run.path / hugging_face.FOLDER):
            if kept.is_dir():
                shutil.copytree(kept, part / kept.name)
        content = Content.of(
            classifier.state_dict(), {"kind": classifier.kind, **facts}
        )
        content.save(part / CLASSIFIER)
        part.rename(folder)


def load_classifier(folder: Path) -> SavedClassifier:
    """Load what `save` wrote. Raises InputError if a file is missing or damaged."""
    trained = load_initial(RunFolder(folder.resolve()))
    _ = trained.encoder  # refuse other architectures
    checkpoint = load_checkpoint(trained.run.path / CLASSIFIER)
    state = checked(checkpoint.state, FACTS, str(checkpoint.path), CheckpointError)
    facts = {name: state[name] for name in FACTS if name in state}
    if facts.get("ngrams"):
        facts |= read_ngrams(facts)
    n_labels = len(facts["labels"])
    classifier = Classifier(trained.model, n_labels, facts["kind"], trained.longest)
    classifier.eval()
    put_weights(classifier.load_state_dict, checkpoint)

    return SavedClassifier(**vars(trained), classifier=classifier, **facts)


def read_ngrams(facts: dict[str, Any]) -> dict[str, Any]:
    """The n-grams and the weight of the model beside them."""
    try:
        from trained.ngrams import Weight, of_state
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the classifier has n-grams, and {error.name} is not installed:"
            " pip install -r requirements-finetune.txt"
        ) from error
    ngrams = of_state(facts["kind"], facts["ngrams"])
    return {"ngrams": ngrams, "weight": Weight(*facts["ngrams"]["model"])}
