"""Writes the vectors of texts to a file, or prints the texts that are nearest to a query."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from torch import Tensor

from configs.keys import ConfigError
from runs.files import write_atomically
from runs.terminal import in_one_line
from trained.load import Trained
from trained.piped import Item, read_until_error
from trained.printed import unknown_in
from trained.similarity import isotropy, nearest, whitened
from trained.template import Notation, ids_of
from trained.vectors import mixed_vectors, vectors_of

N_NEAREST = 10  # texts that are printed
LONGEST_SHOWN = 200  # characters of each
EMPTY = "text(s) are empty: their vectors mean nothing"
Texts = list[tuple[Item, str]]  # with the items that they are from
NO_TEXTS = "there are no texts: standard input or the file is empty"


def read_all(batches: Iterable[Sequence[Item]], notation: Notation) -> Texts:
    """All items with their texts. Raises ConfigError if one cannot be read."""
    items: Texts = []
    for batch in batches:
        texts, problem = read_until_error(batch, lambda texts: notation.read(texts[0]))
        if problem:
            raise ConfigError(problem)
        items += texts
    return items


def save_vectors(trained: Trained, items: Texts, options: Namespace) -> Counter[str]:
    """Write the vectors of all texts to a file; returns notes for the user, with counts."""
    texts = [text for _, text in items]
    vectors, notes = encoded(trained, texts, texts, options)
    file = BytesIO()
    np.save(file, vectors)
    write_atomically(options.vectors, file.getvalue())
    n, d = vectors.shape
    print(f"{options.vectors}: {n:,} vectors of {d}, float32")

    return notes + Counter({EMPTY: texts.count("")})


def print_nearest(trained: Trained, items: Texts, options: Namespace) -> Counter[str]:
    """Print the texts that are nearest to the query, with their cosines; empty ones are left out."""
    items = [(item, text) for item, text in items if text.strip()]
    texts = [text for _, text in items]
    vectors, notes = encoded(trained, [*texts, options.search], texts, options)
    for i, cosine in nearest(vectors[-1], vectors[:-1], options.top or N_NEAREST):
        item, text = items[i]
        print(f"{cosine:.4f}\t{item.name}\t{in_one_line(text[:LONGEST_SHOWN])}")

    return notes


def encoded(
    trained: Any, texts: Sequence[str], sample: Sequence[str], options: Namespace
) -> tuple[np.ndarray, Counter[str]]:
    """The vectors of texts, and notes for the user. The first texts, `sample`, tell how isotropic
    the vectors are, and how they are whitened."""
    if not sample:
        raise ConfigError(NO_TEXTS)
    ids = [ids_of(text, trained.vocabulary) for text in texts]
    vectors = vectors_for(trained, ids, options)
    of_sample = vectors[: len(sample)]
    told = isotropy(of_sample)
    if told:
        print(told, file=sys.stderr)
    if options.whiten and not told:
        raise ConfigError("--whiten needs two texts that differ")
    if options.whiten:
        vectors = whitened(vectors, of_sample)

    return vectors, unknown_in(ids, trained.vocabulary)


def vectors_for(trained: Any, ids: Sequence[Tensor], options: Namespace) -> np.ndarray:
    """The vectors of texts of token ids that the options ask for."""
    if options.mix:
        return mixed_vectors(trained.classifier, ids)
    return vectors_of(trained, ids, options.pooling)
