"""What a run on documents uses, in at most six lines."""

import numpy as np

from data.corpus import Corpus
from data.text.near_copies import NearCopies, near_copies
from data.text.stored import StoredText, StoredTokens
from data.tokens.choose import share_lost
from data.vocabulary import Vocabulary

NAMED = 3  # reasons for which files are left out


def text_report(
    corpus: Corpus,
    vocabulary: Vocabulary,
    tokens: StoredTokens | None,
    share_drawn: float,
) -> list[str]:
    """The lines at the start of a run. Those of one text only say how much of it has no tokens.

    `share_drawn` is the share of the training tokens that windows can hold.
    """
    lost = share_lost(vocabulary, corpus.training)
    lines = [lost] if lost else []
    stored = corpus.stored
    if stored and tokens and stored.has_documents:
        near = NearCopies(
            *stored.kept("near", lambda: near_copies(stored.normal, stored.split))
        )
        lines = [
            stored.contents,
            lengths(stored, tokens, vocabulary),
            left_out(stored),
            *lines,
            drawn(stored, share_drawn),
        ]
        if near.n_near:
            lines.append(near_line(near))
    return [f"text: {line}" for line in lines]


def lengths(stored: StoredText, tokens: StoredTokens, vocabulary: Vocabulary) -> str:
    each = np.diff(tokens.documents.numpy(), prepend=0) - 1
    quartiles = np.quantile(each, [0.25, 0.5, 0.75]).round().astype(int)
    shown = ", ".join(f"{n:,}" for n in quartiles.tolist())
    unit = vocabulary.tokens
    if not vocabulary.is_characters:
        unit += f" of {stored.n_training / max(1, each.sum()):.2f} characters"
    return (
        "a quarter, half and three quarters of the training documents have at most"
        f" {shown} {unit}; the longest has {each.max():,}"
    )


def left_out(stored: StoredText) -> str:
    line = f"left out: {stored.split.n_copies:,} exact copies of documents"
    if stored.split.n_of_validation:
        line += f" ({stored.split.n_of_validation:,} are in data.validation)"
    files: dict[str, list[str]] = {}  # by the reason
    for path, reason in stored.left_out.items():
        files.setdefault(reason, []).append(path.name)
    named = []
    for reason, names in [*files.items()][:NAMED]:
        example = f"{names[0]!r}, which {reason}"
        named.append(f"{len(names):,} such as {example}" if names[1:] else example)
    if named:
        line += f"; {len(stored.left_out):,} files: {'; '.join(named)}"
    if len(files) > NAMED:
        line += "; ..."
    return line


def drawn(stored: StoredText, share: float) -> str:
    line = f"training can draw {share:.1%} of the tokens of its documents"
    names = [repr(stored.folders[folder]) for folder in stored.split.cut]
    if names:
        line += (
            "; a document is cut, for training and validation, because no border between"
            f" documents leaves 5% to 20% for validation in {', '.join(names[:NAMED])}"
        )
    return line


def near_line(near: NearCopies) -> str:
    line = (
        f"warning: {near.n_near / near.n_validation:.1%} of {near.n_validation:,}"
        " validation documents have a near copy in training"
    )
    if near.share_of_training < 1:
        line += f", among {near.share_of_training:.1%} of its documents"
    return line
