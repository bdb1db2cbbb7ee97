"""Loads a trained run: its model, its vocabulary and its keys. The text it was trained on is not
needed."""

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from configs.command_line.command import config_of, resolve
from configs.data import DataConfigs
from configs.experiment import configs_of
from configs.keys import ConfigError
from configs.own_code import vocabulary_of_run
from data.tokens.errors import TokensError
from data.vocabulary import Vocabulary
from model import MaskedLanguageModel
from runs.files import ROOT
from runs.find import find_run
from runs.run_folder import RunFolder, RunFolderError
from training import tracking
from training.callbacks.threads import CLEARLY_FASTER, seconds_by_threads
from training.checkpoint import load_checkpoint, put_weights

CLASSIFIER = "classifier.safetensors"  # the file of a classifier, in its folder
MOVED = "data.corpus="  # before the path of a text that has moved, in words of programs
TOLERANCE = 1e-4  # of the scores of exported models


@dataclass(frozen=True)
class Trained:
    """A trained run, ready for use."""

    run: RunFolder
    values: dict[str, Any]  # every key with its value; `device` is the model's
    # with the best weights (`load_initial`: the first ones), in evaluation mode
    model: nn.Module
    vocabulary: Vocabulary

    @property
    def longest(self) -> int:
        """The tokens of the longest windows that the model was trained on."""
        return max(stage["seq_len"] for stage in self.values["training.stages"])

    @property
    def encoder(self) -> Any:
        """The encoder of the model. Raises ConfigError if the model is not a MaskedLanguageModel,
        or one of pairs."""
        is_of_pairs = hasattr(self.model, "forward_pairs")
        if is_of_pairs or not isinstance(self.model, MaskedLanguageModel):
            architecture = self.values["model.architecture"]
            raise ConfigError(
                f"model.architecture={architecture}: only modern without objective.nsp and"
                " objective.sop can be fine-tuned or become ModernBERT (for export.py --to"
                " huggingface, a model of your own may have a method hugging_face())"
            )

        return self.model.encoder

    @property
    def takes_mask(self) -> bool:
        """Whether the model takes an attention mask. A model of your own may take none."""
        return "attention_mask" in signature(self.model.forward).parameters

    def scores(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits `[batch, length, n_tokens]` of token ids `[batch, length]`; `mask` is False at
        padding."""
        return self.model(ids, attention_mask=mask).view(*ids.shape, -1)

    def data(self) -> DataConfigs:
        """The run's text and validation set. Raises CorpusError or RunFolderError if the text is
        missing or changed."""
        data = configs_of(self.values).data
        data.vocabulary = self.vocabulary
        if data.loaded.sha256 != self.run.corpus()["sha256"]:
            raise RunFolderError(
                f"{self.run.path}: its corpus {data.corpus} has changed since training: restore it,"
                f" or say where it is with {MOVED}PATH"
            )

        return data


def load_trained(
    name: str = "last", logs: Path = ROOT / "logs", corpus: str | None = None
) -> Trained:
    """`load` the run called `name`: a folder, a uuid or its first characters, the
    key `name` of its runs, or `last`.

    `trained.model(ids)` gives logits `[batch * seq_len, n_tokens]` for `ids` `[batch, seq_len]`,
    such as `trained.vocabulary.encode(text)[None]`, if the model is a built-in one. Raises
    InputError if there is no such run.
    """
    return load(find_run(name, logs), corpus=corpus)


def moved_corpus(word: str) -> str:
    """The path of a text that has moved, in a word of a command line; the `type` of an argument."""
    if not word.startswith(MOVED):
        raise ArgumentTypeError(f"{word}: the only key here is {MOVED}PATH")
    return word.removeprefix(MOVED)


def load(run: RunFolder, device: str = "cpu", corpus: str | None = None) -> Trained:
    """Load a run's keys, vocabulary and best weights; `corpus` is the path of its text if that has
    moved. Raises InputError if one of its files is missing or damaged."""
    trained = load_initial(run, device, corpus)
    weights = run.weights_path
    if not weights.exists():
        if run.metrics():
            raise RunFolderError(
                f"{weights} is missing, with the trained weights: restore it, or train the run again"
            )
        is_classifier = (run.path / CLASSIFIER).exists()
        why = "is a classifier" if is_classifier else "has no trained weights yet"
        raise RunFolderError(
            f"{run.path} {why}: name a run that has been trained until its first evaluation"
        )

    put_weights(trained.model.load_state_dict, load_checkpoint(weights))

    return trained


def load_initial(
    run: RunFolder, device: str = "cpu", corpus: str | None = None
) -> Trained:
    """As `load`, with initial weights. Raises InputError."""
    tracking.be_quiet()
    overridden = {"device": device}
    if corpus:
        overridden["data.corpus"] = corpus
    values = resolve(config_of(run), overridden, trains=False)
    try:
        vocabulary = vocabulary_of_run(run, values)
    except TokensError as error:
        raise RunFolderError(f"{run.vocabulary_path} is damaged: {error}") from error

    return Trained(run, values, untrained(values, vocabulary), vocabulary)


@torch.inference_mode()
def choose_threads(trained: Trained, most: int) -> None:
    """Compute with `most` threads from now on, or with one if that is clearly faster, as it is
    beside a program that keeps a core busy."""
    ids = random_ids(trained, 8, trained.longest)
    positions = torch.arange(ids.numel())  # which a model of your own may need
    if most > 1 and trained.values["device"] == "cpu":
        seconds = seconds_by_threads(lambda: trained.model(ids, positions), (most, 1))
        torch.set_num_threads(
            1 if seconds[1] < CLEARLY_FASTER * seconds[most] else most
        )


def check_scores(
    trained: Trained, exported: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Compare the scores of an exported model with those of `trained`, on random tokens; later
    texts are padded.

    `exported(ids, mask)` may have scores for more tokens. Raises RuntimeError if one differs by
    more than 1e-4.
    """
    for batch, length in (
        (1, 1),
        (7, (trained.longest + 1) // 2),
        (5, trained.longest),
    ):
        ids = random_ids(trained, batch, length)
        mask = torch.arange(length) < torch.linspace(length, 1, batch).int()[:, None]
        ids[~mask] = trained.vocabulary.padding_token
        with torch.inference_mode():
            ours = trained.scores(ids, mask)
            differences = (exported(ids, mask)[..., : ours.shape[-1]] - ours).abs()

        difference = (
            (differences[mask] if differences.ndim == 3 else differences).max().item()
        )
        if not difference <= TOLERANCE:  # nan is not
            raise RuntimeError(
                f"the scores of the exported model differ by {difference:.1e}: please report this"
            )


def random_ids(trained: Trained, batch: int, length: int) -> Tensor:
    """Random tokens and blanks, `[batch, length]`."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(
        trained.vocabulary.n_ordinary, (batch, length), generator=generator
    )
    ids[:, ::3] = trained.vocabulary.mask_token
    return ids


def untrained(values: Mapping[str, Any], vocabulary: Vocabulary) -> nn.Module:
    """The model of a run's keys with initial weights, in evaluation mode."""
    configs = configs_of(values)
    configs.data.vocabulary = vocabulary  # or the config tree would read the text
    return configs.network.eval()
