"""Estimates how many validation documents have a near copy in training, by MinHash (Broder 1997).

A document is a set of shingles, which are hashes of WORDS words in a row. Its sketch is the SKETCH
smallest of them. Two documents are near copies if their sketches share most of their hashes.
"""

from typing import NamedTuple

import numpy as np

from data.text.files import in_batches
from data.text.normal_form import NormalForm
from data.text.parallel import parallel_map
from data.text.split import TRAINING, VALIDATION, Split

WORDS = 5
SKETCH = 32
SHARE = 0.7  # of the larger sketch
N_VALIDATION = 2_000  # documents that are compared, at most
N_BYTES = 20_000_000  # of training documents that are compared, at most
LONGEST = 20_000  # bytes at the beginning of a document
CHUNK = 1_000_000  # bytes that are hashed at once
MOST_EQUAL = 100  # training documents that are compared because of one hash
BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2**64


class NearCopies(NamedTuple):
    """Of validation documents in training."""

    n_near: int
    n_validation: int  # documents that were compared
    share_of_training: float  # the share of training documents that were compared


class Sketches(NamedTuple):
    """The hashes of many documents, in ascending order of both."""

    n_documents: int
    documents: np.ndarray  # [n_hashes] the number of the document of each hash
    hashes: np.ndarray  # [n_hashes]


def near_copies(normal: NormalForm, split: Split) -> NearCopies:
    """Compare samples of whole documents that are spread over both parts."""
    is_first = np.concatenate([[True], split.is_end[:-1]])
    validation = np.flatnonzero(is_first & (split.part == VALIDATION))
    training = np.flatnonzero(is_first & (split.part == TRAINING))
    n_bytes = np.minimum(split.n_bytes[training], LONGEST).sum(dtype=np.int64)
    share = min(1.0, N_BYTES / max(1, n_bytes))
    validation = spread(validation, N_VALIDATION)
    training = spread(training, int(share * len(training)))

    ours = sketches_of(normal, split, validation)
    theirs = sketches_of(normal, split, training)
    n_near = len(near(ours, theirs))
    return NearCopies(n_near, len(validation), share)


def spread(numbers: np.ndarray, n: int) -> np.ndarray:
    """At most `n` of some numbers, evenly spread."""
    if len(numbers) <= n:
        return numbers
    return numbers[np.arange(n) * len(numbers) // n]


def sketches_of(normal: NormalForm, split: Split, pieces: np.ndarray) -> Sketches:
    """The sketches of the documents that begin with `pieces`."""
    lengths = np.minimum(split.n_bytes[pieces], LONGEST).astype(np.int64)
    begins = split.begins[pieces]

    texts = (
        normal.read(begin, length)
        for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)
    )
    documents = []
    hashes = []
    n_done = 0
    for sketches in parallel_map(sketched, in_batches(texts, CHUNK)):
        documents.append(sketches.documents + n_done)
        hashes.append(sketches.hashes)
        n_done += sketches.n_documents
    return Sketches(n_done, np.concatenate(documents), np.concatenate(hashes))


def sketched(texts: list[bytes]) -> Sketches:
    """The sketches of some documents.

    A word begins after a space, or is a character of three or more bytes, as in Chinese.
    """
    content = np.frombuffer(b" " + b" ".join(texts) + b" ", np.uint8)
    ends = np.cumsum([len(text) + 1 for text in texts])
    is_space = content <= ord(" ")
    content = np.where(is_space, ord(" "), content).astype(np.uint64)
    begins_word = ~is_space[1:] & (is_space[:-1] | (content[1:] >= 0xE0))
    words = np.flatnonzero(begins_word) + 1
    document = np.searchsorted(ends, words, side="left")
    n = len(words) - WORDS + 1
    if n < 1:
        return Sketches(len(texts), np.empty(0, np.int64), np.empty(0, np.uint64))

    # of the text up to each byte: the sum of its bytes times powers of BASE
    powers = np.full(len(content), BASE, np.uint64).cumprod()
    up_to = np.concatenate([np.zeros(1, np.uint64), (content * powers).cumsum()])
    is_inside = document[:n] == document[WORDS - 1 :]
    begin = words[:n][is_inside]
    document = document[:n][is_inside]
    end = np.append(words, len(content))[WORDS:][is_inside]
    end = np.minimum(end, ends[document] + 1)
    inverse = np.full(len(content), pow(BASE, -1, 2**64), np.uint64).cumprod()
    hashes = (up_to[end] - up_to[begin]) * inverse[begin]
    hashes ^= hashes >> np.uint64(31)
    hashes *= np.uint64(BASE)
    hashes ^= hashes >> np.uint64(29)

    order = np.lexsort([hashes, document])
    document = document[order]
    hashes = hashes[order]
    is_new = np.ones(len(hashes), np.bool_)
    is_new[1:] = (np.diff(hashes) != 0) | (np.diff(document) != 0)
    document = document[is_new]
    rank = np.arange(len(document)) - np.searchsorted(document, document)
    in_sketch = rank < SKETCH
    return Sketches(len(texts), document[in_sketch], hashes[is_new][in_sketch])


def near(ours: Sketches, theirs: Sketches) -> np.ndarray:
    """The numbers of our documents that have a near copy among theirs."""
    order = np.argsort(theirs.hashes, kind="stable")
    hashes = theirs.hashes[order]
    begins = np.searchsorted(hashes, ours.hashes, side="left")
    n_equal = np.searchsorted(hashes, ours.hashes, side="right") - begins
    n_equal = n_equal.clip(max=MOST_EQUAL)
    before = n_equal.cumsum() - n_equal
    equal = np.arange(n_equal.sum()) + (begins - before).repeat(n_equal)
    pairs = np.stack([ours.documents.repeat(n_equal), theirs.documents[order[equal]]])
    pairs, n_shared = np.unique(pairs, axis=1, return_counts=True)
    our_sizes = np.bincount(ours.documents, minlength=1)[pairs[0]]
    their_sizes = np.bincount(theirs.documents, minlength=1)[pairs[1]]
    larger = np.maximum(our_sizes, their_sizes)
    return np.unique(pairs[0][n_shared >= SHARE * larger])
