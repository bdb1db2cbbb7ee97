import re

import pytest
import torch

from data.corpus import load_corpus
from data.play import words
from data.play.grammar import grammar
from data.protocol import ValidationSet, validation_set
from data.vocabulary import Vocabulary
from tests.data.masking.helpers import generator
from tests.model.conftest import model_of
from writing.phenomena import PHENOMENA, excess_by_phenomenon, known_characters
from writing.truth import TruePosterior


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(load_corpus("play").counts)


@pytest.fixture(scope="module")
def validation(vocabulary):
    """Eight windows with more masks than the protocol's."""
    protocol = validation_set(vocabulary.encode(load_corpus("play").validation))
    masked = torch.rand(8, 256, generator=generator()) < 0.5
    return ValidationSet(protocol.windows[:8], masked)


@pytest.fixture(scope="module")
def known(validation, vocabulary):
    return known_characters(validation, vocabulary)


def test_the_truth_has_no_excess_and_a_blurred_truth_has_some(
    validation, vocabulary, known
):
    truth = TruePosterior(grammar(), vocabulary)
    n = vocabulary.n_ordinary

    def blurred_truth(inputs, positions):
        """The exact posterior mixed with a uniform distribution over characters."""
        probs = 0.75 * truth(inputs, positions).exp()
        probs[:, :n] += 0.25 / n
        return probs.log()

    exact = excess_by_phenomenon(truth, known, vocabulary.mask_token)
    blurred = excess_by_phenomenon(
        model_of(blurred_truth), known, vocabulary.mask_token
    )

    assert list(exact) == list(blurred) == list(PHENOMENA)
    assert sum(row["n"] for row in blurred.values()) == validation.masked.sum()

    for name, row in blurred.items():
        assert abs(exact[name]["excess"]) < 1e-9
        assert row["excess"] == pytest.approx(row["loss"] - row["floor"])

    assert blurred["topic vowel"]["excess"] > 3 * blurred["topic vowel"]["stderr"] > 0


def test_phenomena_are_those_of_the_words(validation, vocabulary, known):
    stems = set()
    inflected = set()

    for topic in words.topics():
        stems |= {*topic.nouns, *topic.adjectives}
        inflected |= {noun + words.PLURAL_NOUN for noun in topic.nouns}
        inflected |= {verb + words.SINGULAR_VERB for verb in topic.verbs}
        inflected |= {verb + words.PLURAL_VERB for verb in topic.verbs}

    marks = dict.fromkeys(".!", "end of another sentence") | {"?": "question mark"}
    codes = torch.full(validation.masked.shape, -1)
    codes[validation.masked] = known.phenomena
    seen = set()

    for window, row in zip(validation.windows, codes, strict=True):
        text = vocabulary.decode(window)
        for match in re.finditer(
            r"(?<=[^A-Za-z])[A-Za-z]+(?=[^A-Za-z])|[^A-Za-z]", text
        ):
            written = match[0]
            if not written.isalpha():
                expected = [marks.get(written, "spaces and the rest")]
            else:
                expected = [
                    "first letter of a word",
                    *["inside a word"] * (len(written) - 1),
                ]
            if written in stems | inflected:
                expected[1] = "topic vowel"
            if written in inflected:
                expected[-1] = "agreement"
            for code, right in zip(
                row[match.start() : match.end()], expected, strict=True
            ):
                if code >= 0:
                    assert list(PHENOMENA)[code] == right, written
                    seen.add(right)

    assert seen == set(PHENOMENA)
