"""Reference losses: guessing by frequency, counting, and the Bayes-optimal loss ("floor") if it is
known.

The last two take some seconds and depend on the corpus and the protocol only, so they are cached.
"""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

import data.corpus
from data import protocol
from data.corpus import Corpus
from data.document_protocol import validation_set_of_documents
from data.play.floor import Floor
from data.protocol import validation_set
from data.references.counting import count
from data.text.stored import pieces
from data.vocabulary import MASK, PAD, SEP, Vocabulary
from runs.files import write_atomically

VERSION = 5  # of the computation; a new version ignores cached losses


def without_counting(vocabulary: Vocabulary, corpus: Corpus) -> str:
    """Why counting and the floor, which predict every character, do not apply; empty if they do."""
    if vocabulary.is_characters and vocabulary.unknown_token is None:
        return ""

    losses = "counting and the floor need" if corpus.automaton else "counting needs"
    return f"{losses} data.tokens=characters, without [UNK]"


def unigram_loss(
    training_counts: torch.Tensor, validation_counts: torch.Tensor
) -> float:
    """Mean loss, in nats, of predicting every validation token by its frequency in the training
    text.

    Both are `[n_ordinary]`, how often each token occurs. Half a count is added to every token, so
    that tokens unseen in training have a finite loss. `[UNK]` is never a target.
    """
    counts = training_counts.to(torch.float64) + 0.5
    losses = -(counts / counts.sum()).log()
    return float((losses * validation_counts).sum() / validation_counts.sum())


def window_losses(corpus: Corpus) -> dict[str, np.ndarray]:
    """Summed losses in nats per window of the validation protocol, `[n_windows]`, from the cache or
    computed now.

    They are `counting`, which counts `corpus.training`, and if the automaton is known, `floor`.
    `n_masked` has the numbers of masked positions.
    """
    losses = cached_losses(corpus)
    if losses is None:
        losses = _count(corpus)
        if corpus.automaton:
            losses["floor"] = _floor(corpus)
        content = io.BytesIO()
        np.savez(content, **losses)
        # without a cache, the losses are computed again next time
        with contextlib.suppress(OSError):
            write_atomically(_path(corpus), content.getvalue())

    return losses


def cached_losses(corpus: Corpus) -> dict[str, np.ndarray] | None:
    """The `window_losses` in the cache; None if there are none, or if the file is damaged."""
    with contextlib.suppress(OSError, ValueError, EOFError, BadZipFile):
        return dict(np.load(_path(corpus)))
    return None


def mean_losses(losses: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The losses of `window_losses` in nats per masked character."""
    n_masked = float(losses["n_masked"].mean())
    return {
        name: float(sums.mean()) / n_masked
        for name, sums in losses.items()
        if name != "n_masked"
    }


def counted_ids(corpus: Corpus, vocabulary: Vocabulary) -> torch.Tensor:
    """The training ids that are counted, `[n]`: those of `corpus.training`; or of documents, whose
    `[SEP]` keeps contexts inside of them, as many."""
    if not (corpus.stored and corpus.has_documents):
        return vocabulary.encode(corpus.training)
    ids = corpus.stored.tokenized(vocabulary).training.ids
    return torch.cat([ids[part.start : part.stop] for part in pieces(len(ids))]).long()


def _path(corpus: Corpus) -> Path:
    names = "counting-floor" if corpus.automaton else "counting"
    name = f"{names}-{corpus.sha256[:16]}-{protocol.SEED}-{VERSION}.npz"
    return data.corpus.CACHE / "references" / name


def _count(corpus: Corpus) -> dict[str, Any]:
    separators = [SEP] if corpus.has_documents else []
    vocabulary = Vocabulary(corpus.counts, [PAD, MASK, *separators])
    documents = None
    if corpus.stored and corpus.has_documents:
        stored = corpus.stored.tokenized(vocabulary)
        validation = validation_set_of_documents(
            stored.validation.ids,
            stored.validation_documents,
            n_ordinary=vocabulary.n_ordinary,
            padding_token=vocabulary.padding_token,
        )
        assert validation.attention_mask is not None
        documents = validation.attention_mask.numpy()
    elif corpus.stored:
        validation = validation_set(corpus.stored.tokenized(vocabulary).validation.ids)
    else:
        validation = validation_set(vocabulary.encode(corpus.validation))

    masked = validation.masked.numpy()
    counts = count(
        counted_ids(corpus, vocabulary).numpy(),
        validation.windows.numpy(),
        masked,
        vocabulary.n_ordinary,
        documents,
    )
    n_masked = masked.sum(1)
    windows = np.split(counts.losses, n_masked.cumsum()[:-1])
    sums = np.array([losses.sum() for losses in windows])
    return {"counting": sums, "n_masked": n_masked}


def _floor(corpus: Corpus) -> np.ndarray:
    assert corpus.automaton is not None
    validation = validation_set(
        Vocabulary(corpus.automaton.alphabet).encode(corpus.validation)
    )
    return (
        Floor(corpus.automaton)
        .losses(validation.windows, validation.masked)
        .sum(dim=1)
        .numpy()
    )
