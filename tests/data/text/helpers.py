"""Documents as they are stored."""

from itertools import pairwise

from data.text.split import TRAINING, VALIDATION
from data.vocabulary import MASK, PAD, SEP, Vocabulary


def vocabulary_of(corpus):
    """Its characters, and what else its ids have."""
    return Vocabulary(corpus.counts, [PAD, MASK, SEP])


def documents_of(corpus):
    """The training and the validation documents by their ids, without the [SEP] of each."""
    vocabulary = vocabulary_of(corpus)
    tokens = corpus.stored.tokenized(vocabulary)
    training = cut(tokens.training.ids, tokens.documents, vocabulary)
    return training, cut(tokens.validation.ids, tokens.validation_documents, vocabulary)


def cut(ids, ends, vocabulary):
    assert ends[-1] == len(ids)

    texts = []
    for begin, end in pairwise([0, *ends.tolist()]):
        texts.append(vocabulary.decode(ids[begin:end].long()))
        assert texts[-1].endswith(SEP)

    return [text.removesuffix(SEP) for text in texts]


def whole_parts(corpus):
    """The texts of both parts, without separators."""
    stored = corpus.stored
    texts = {TRAINING: "", VALIDATION: ""}
    for number, part in enumerate(stored.split.part.tolist()):
        if part in texts:
            texts[part] += stored.piece(number)

    return texts[TRAINING], texts[VALIDATION]
