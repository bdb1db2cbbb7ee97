"""A model's excess over the floor of the play, by linguistic phenomenon.

On average over all characters no model is below the floor. In a single class it can be, at the cost
of others: a character's class depends on the character itself, which a model may guess too often.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from data.play.grammar import grammar
from data.play.words import TOPIC_VOWELS
from data.protocol import ValidationSet, evenly_spaced
from data.vocabulary import Vocabulary
from training.evaluation import masked_outcomes
from writing.judge import ratio
from writing.truth import TruePosterior

MAX_WINDOWS = 192  # the exact posteriors take 10 seconds on one core
# Name -> whether it fits: by the word of the state, the character, and the one before it. The first
# that fits counts.
PHENOMENA: dict[str, Callable[[str, str, str], bool]] = {
    # the latter is the s of a plural
    "agreement": lambda word, c, before: word in ("verb ending", "noun ending"),
    "topic vowel": lambda word, c, before: (
        word in ("noun", "verb", "adjective") and c in TOPIC_VOWELS
    ),
    "first letter of a word": lambda word, c, before: (
        c.isalpha() and not before.isalpha()
    ),
    # or the first character of a window, if it is a letter
    "inside a word": lambda word, c, before: c.isalpha(),
    # which the first word of the sentence announces
    "question mark": lambda word, c, before: c == "?",
    "end of another sentence": lambda word, c, before: c in ".!",
    "spaces and the rest": lambda word, c, before: True,
}


class KnownCharacters(NamedTuple):
    """The masked characters of some validation windows, in the order of `masked.nonzero()`."""

    windows: Tensor  # [n_windows, seq_len], on the device of the validation set
    masked: Tensor  # [n_windows, seq_len] bool, there too
    phenomena: Tensor  # [n_masked], indices into PHENOMENA
    floor: Tensor  # [n_masked], -log of the exact posterior in nats


def known_characters(
    validation: ValidationSet, vocabulary: Vocabulary
) -> KnownCharacters:
    """The phenomenon and the floor of the masked characters in at most 192 evenly spaced windows of
    the play, exactly.

    The phenomenon is that of the most probable state given the whole window.
    """
    truth = TruePosterior(grammar(), vocabulary)
    some = validation.take(evenly_spaced(validation.n_windows, MAX_WINDOWS))
    windows = some.windows
    masked = some.masked
    shown = windows.cpu()
    hidden = masked.cpu()
    beliefs = truth.floor.beliefs(truth.to_floor(shown), hidden, "word")
    words = truth.floor.values("word")
    texts = [vocabulary.decode(window) for window in shown]
    phenomena = []
    for word, (i, t) in zip(
        beliefs.argmax(1).tolist(), hidden.nonzero().tolist(), strict=True
    ):
        place = (words[word], texts[i][t], texts[i][max(0, t - 1)])
        fitting = [fits(*place) for fits in PHENOMENA.values()]
        phenomena.append(fitting.index(True))

    floor, _ = masked_outcomes(truth, shown, hidden, vocabulary.mask_token)

    return KnownCharacters(windows, masked, torch.tensor(phenomena), floor)


def excess_by_phenomenon(
    model: nn.Module, known: KnownCharacters, mask_token: int
) -> dict[str, dict[str, float]]:
    """The excess of a model over the floor, by phenomenon: {name: {"n", "loss", "floor", "excess",
    "stderr"}}.

    All but the number n of characters are in nats per masked character. `stderr` is the standard
    error of the excess, over windows. Phenomena that do not occur are left out.
    """
    losses, _ = masked_outcomes(model, known.windows, known.masked, mask_token)
    window = known.masked.nonzero()[:, 0].cpu()
    n_windows = len(known.windows)
    results = {}
    for i, name in enumerate(PHENOMENA):
        here = known.phenomena == i
        n = int(here.sum())
        if not n:
            continue
        loss = losses[here]
        floor = known.floor[here]
        counts = window[here].bincount(minlength=n_windows)
        excess, stderr = ratio(window[here].bincount(loss - floor, n_windows), counts)
        row = {"n": n, "loss": loss.mean().item(), "floor": floor.mean().item()}
        results[name] = row | {"excess": excess, "stderr": stderr}

    return results
