"""The text, its vocabulary, and the windows of it."""

from typing import Annotated

import torch
from labml.configs import BaseConfigs, option

from configs.keys import Key
from configs.seeds import derived_seed
from data.corpus import Corpus, CorpusError, load_corpus, split_at
from data.protocol import ValidationSet, validation_set
from data.vocabulary import Vocabulary
from data.windows import Windows


class DataConfigs(BaseConfigs):
    """Keys `data.*`."""

    corpus: Annotated[str, Key("auto, tiny_shakespeare, play (built in), or the path of any UTF-8 text file")] = "auto"
    sampling: Annotated[
        str,
        Key("random: windows anywhere; shuffled: every part of the text once an epoch", choices=("random", "shuffled")),
    ] = "random"

    # From the experiment: see configs/experiment.py.
    device: torch.device
    seed: int
    longest: int  # of all stages, in characters

    loaded: Corpus = "load"  # type: ignore[assignment]
    vocabulary: Vocabulary = "characters"  # type: ignore[assignment]
    ids: torch.Tensor = "encode"  # type: ignore[assignment]
    windows: Windows = "training_windows"  # type: ignore[assignment]
    validation: ValidationSet = "by_protocol"  # type: ignore[assignment]


@option(DataConfigs.loaded)
def load(c: DataConfigs) -> Corpus:
    return load_corpus(c.corpus)


@option(DataConfigs.vocabulary)
def characters(c: DataConfigs) -> Vocabulary:
    return Vocabulary(c.loaded.text)


@option(DataConfigs.ids)
def encode(c: DataConfigs) -> torch.Tensor:
    """The whole corpus as token ids `[n_chars]` on the training device, where it stays."""
    return c.vocabulary.encode(c.loaded.text).to(c.device)


@option(DataConfigs.validation)
def by_protocol(c: DataConfigs) -> ValidationSet:
    return validation_set(c.ids)


@option(DataConfigs.windows)
def training_windows(c: DataConfigs) -> Windows:
    training = c.ids[: split_at(len(c.ids))]
    if len(training) <= c.longest:
        raise CorpusError(
            f"the training text has {len(training):,} characters, too few for windows of {c.longest:,}:"
            " shorten training.stages or take a longer text"
        )
    return Windows(training, seed=derived_seed(c.seed, "windows"), sampling=c.sampling)
