"""What a run's losses are compared with: guessing, counting, and the floor where it is known.

Counting and the floor take some seconds, and depend on the corpus and the protocol only: they are kept in a cache.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from data import corpus, protocol
from data.corpus import Corpus
from data.counting import count
from data.play.automaton import Automaton
from data.play.floor import Floor, masked_channel
from data.protocol import N_MASKED, validation_set
from data.vocabulary import Vocabulary

VERSION = 1  # of what is computed: a change makes the cache anew


def unigram_loss(training_ids: torch.Tensor, validation_ids: torch.Tensor, n_chars: int) -> float:
    """Cross-entropy, in nats, of predicting every validation character by its frequency in training.

    Half a count is added to every character, so that one unseen in training does not cost infinity.
    """
    counts = torch.bincount(training_ids.cpu(), minlength=n_chars).to(torch.float64) + 0.5
    return float(-(counts / counts.sum()).log()[validation_ids.cpu()].mean())


def counting_losses(text: Corpus) -> np.ndarray:
    """Summed loss of counting in nats, `[n_windows]`, over the validation protocol's windows."""
    return _cached(_counting_path(text), lambda: _count(text))


def floor_losses(text: Corpus) -> np.ndarray:
    """Summed lowest possible loss in nats, `[n_windows]`, for a corpus whose automaton is known."""
    assert text.automaton is not None
    return _cached(_floor_path(text, text.automaton), lambda: _floor(text))


def is_cached(text: Corpus) -> bool:
    """Whether nothing needs to be computed."""
    paths = [_counting_path(text)] + ([_floor_path(text, text.automaton)] if text.automaton else [])
    return all(_load(path) is not None for path in paths)


def mean_loss(window_losses: np.ndarray) -> float:
    """Nats a masked character."""
    return float(window_losses.mean()) / N_MASKED


def fingerprint(automaton: Automaton) -> str:
    """A name for an automaton that no other one has."""
    content = repr((automaton.characters, [sorted(following.items()) for following in automaton.successors]))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _counting_path(text: Corpus) -> Path:
    return corpus.CACHE / "references" / f"counting-{text.sha256[:16]}-{protocol.SEED}-{VERSION}.npy"


def _floor_path(text: Corpus, automaton: Automaton) -> Path:
    name = f"floor-{fingerprint(automaton)}-{text.sha256[:16]}-{protocol.SEED}-{VERSION}.npy"
    return corpus.CACHE / "references" / name


def _count(text: Corpus) -> np.ndarray:
    vocabulary = Vocabulary(text.characters)
    validation = validation_set(vocabulary.encode(text.validation))
    training = vocabulary.encode(text.training).numpy()
    counts = count(training, validation.windows.numpy(), validation.masked.numpy(), vocabulary.n_chars)
    return counts.losses.reshape(-1, N_MASKED).sum(axis=1)


def _floor(text: Corpus) -> np.ndarray:
    assert text.automaton is not None
    floor = Floor(text.automaton)
    validation = validation_set(Vocabulary(text.automaton.alphabet).encode(text.validation))
    shown = validation.windows.masked_fill(validation.masked, floor.n_chars)
    losses = floor.losses(validation.windows, shown, validation.masked, masked_channel(floor.n_chars))
    return losses.sum(dim=1).numpy()


def _cached(path: Path, compute: Callable[[], np.ndarray]) -> np.ndarray:
    losses = _load(path)
    if losses is None:
        losses = compute()
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time the next time, nothing else
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            with open(temporary, "wb") as file:
                np.save(file, losses)
            os.replace(temporary, path)
    return losses


def _load(path: Path) -> np.ndarray | None:
    """What is in the cache; None where there is nothing, or nothing that can be used."""
    try:
        losses = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return losses if losses.ndim == 1 and np.isfinite(losses).all() else None
