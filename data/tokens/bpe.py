"""Trains a byte-level BPE on `Corpus.training`: `data.tokens=bpe:8192`.

Sennrich et al. 2016; Radford et al. 2019.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data.corpus
from data.corpus import Corpus
from data.tokens.by_word import SPLIT
from data.tokens.errors import TokensError
from data.tokens.subwords import library, read_tokenizer, renumbered
from runs.files import write_atomically

MIN_FREQUENCY = 2
VERSION = 2  # of the training; a new version ignores cached tokenizers


def bpe(corpus: Corpus, n: int, announce: Callable[[str], None]) -> dict[str, Any]:
    """A tokenizer.json of at most `n` ordinary tokens, from the cache or trained now.

    Raises TokensError.
    """
    path = cache_path(corpus.sha256, n)
    with contextlib.suppress(TokensError):  # not cached yet, or damaged
        return read_tokenizer(path)

    announce(f"training a BPE of {n:,} tokens")
    tokenizer = renumbered(train(corpus.training, n))
    with contextlib.suppress(OSError):  # without a cache, it is trained again next time
        write_atomically(path, json.dumps(tokenizer).encode())

    return tokenizer


def cache_path(sha256: str, n: int) -> Path:
    return data.corpus.CACHE / "tokenizers" / f"bpe-{sha256[:16]}-{n}-{VERSION}.json"


def train(text: str, n: int) -> dict[str, Any]:
    """The tokenizer.json of a byte-level BPE: the same one for the same text and size."""
    tokenizers = library()
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    new = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated")
    levels = [split, byte_level(add_prefix_space=False, use_regex=False)]
    new.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(levels)
    new.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=n,
        min_frequency=MIN_FREQUENCY,
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    new.train_from_iterator([text], trainer)
    return json.loads(new.to_str())
