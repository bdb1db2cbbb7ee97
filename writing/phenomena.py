"""A model's excess over the floor of the play, by linguistic phenomenon.

On average over all characters no model is below the floor. In a single class it can be, at the cost of others: a
character's class depends on the character itself, which a model may guess too often.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from data.play.grammar import grammar
from data.play.words import TOPIC_VOWELS
from data.protocol import ValidationSet
from data.vocabulary import Vocabulary
from trained.measures import evenly_spaced
from training.evaluation import masked_outcomes
from writing.judge import ratio
from writing.truth import TruePosterior

AGREEMENT = "agreement"  # the ending of a verb, and the s of a plural noun
QUESTION_MARK = "question mark"  # which the first word of the sentence announces
SENTENCE_END = "end of another sentence"  # . !
TOPIC_VOWEL = "topic vowel"  # of a noun, verb or adjective
FIRST_LETTER = "first letter of a word"  # the first character of a window counts as inside one if it is a letter
INSIDE = "inside a word"
OTHER = "spaces and the rest"
MAX_WINDOWS = 192  # the exact posteriors take 10 seconds on one core
PHENOMENA = (FIRST_LETTER, INSIDE, TOPIC_VOWEL, AGREEMENT, QUESTION_MARK, SENTENCE_END, OTHER)


class KnownCharacters(NamedTuple):
    """The masked characters of some validation windows, in the order of `masked.nonzero()`."""

    windows: Tensor  # [n_windows, seq_len], on the device of the validation set
    masked: Tensor  # [n_windows, seq_len] bool, there too
    phenomena: Tensor  # [n_masked], indices into PHENOMENA
    floor: Tensor  # [n_masked], -log of the exact posterior in nats


def known_characters(validation: ValidationSet, vocabulary: Vocabulary) -> KnownCharacters:
    """The phenomenon and the floor of the masked characters in at most 192 evenly spaced windows of the play, exactly.

    The phenomenon is that of the most probable state given the whole window.
    """
    truth = TruePosterior(grammar(), vocabulary)
    kept = [evenly_spaced(part, MAX_WINDOWS) for part in (validation.windows, validation.masked)]
    windows, masked = (part.cpu() for part in kept)
    beliefs = truth.floor.beliefs(truth.to_floor(windows), masked, "word")
    word = truth.floor.values("word")
    kinds = [word[i] for i in beliefs.argmax(1)]
    texts = [vocabulary.decode(window) for window in windows]
    phenomena = [_phenomenon(kind, texts[i], t) for kind, (i, t) in zip(kinds, masked.nonzero().tolist(), strict=True)]
    floor, _ = masked_outcomes(truth, windows, masked, vocabulary.mask_token)
    return KnownCharacters(kept[0], kept[1], torch.tensor([PHENOMENA.index(name) for name in phenomena]), floor)


def _phenomenon(kind: str, text: str, t: int) -> str:
    if kind in ("verb ending", "noun ending"):
        return AGREEMENT
    if kind in ("noun", "verb", "adjective") and text[t] in TOPIC_VOWELS:
        return TOPIC_VOWEL
    if text[t].isalpha():
        return FIRST_LETTER if t > 0 and not text[t - 1].isalpha() else INSIDE
    if text[t] == "?":
        return QUESTION_MARK
    return SENTENCE_END if text[t] in ".!" else OTHER


def excess_by_phenomenon(model: nn.Module, known: KnownCharacters, mask_token: int) -> dict[str, dict[str, float]]:
    """The excess of a model over the floor, by phenomenon: {name: {"n", "loss", "floor", "excess", "stderr"}}.

    All but the number n of characters are in nats per masked character. `stderr` is the standard error of the excess,
    over windows. Phenomena that do not occur are left out.
    """
    losses, _ = masked_outcomes(model, known.windows, known.masked, mask_token)
    window, n_windows = known.masked.nonzero()[:, 0].cpu(), len(known.windows)
    results = {}
    for i, name in enumerate(PHENOMENA):
        here = known.phenomena == i
        if n := int(here.sum()):
            counts = window[here].bincount(minlength=n_windows)
            loss, floor = losses[here], known.floor[here]
            excess, stderr = ratio(window[here].bincount(loss - floor, n_windows), counts)
            row = {"n": n, "loss": loss.mean().item(), "floor": floor.mean().item()}
            results[name] = row | {"excess": excess, "stderr": stderr}
    return results
