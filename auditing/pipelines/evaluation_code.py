"""Audits evaluation code alone: known predictors take the model's place, and it must measure their exact losses.

The predictors are uniform, unigram, and the exact posterior of the play, whose loss is the floor. A wrong mean, a wrong
ignored label or text without masks then gives another number, which is known as well. The evaluation does not say which
visible characters it scores (BERT keeps a tenth of the selected ones): a fourth predictor, which is wrong at visible
characters only, measures their share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from auditing.errors import TargetError
from auditing.finding import Finding, Verdict
from auditing.pipelines.batch import Array, Batch, Call
from auditing.pipelines.known_losses import ABSOLUTE, RELATIVE, Known, Measured, mean, name_of
from auditing.pipelines.references import Play
from auditing.pipelines.tokens import Tokens
from auditing.pipelines.windows_read import Reading, read_windows

IMPOSSIBLE = -30.0  # as a log-probability
UNKNOWN = 0.02  # tolerance if some labels are of visible characters: which ones is not known
MOST_KEPT = 0.5  # visible characters per other one among those that a right evaluation scores
VISIBLE_ONLY = "visible characters"
Predictor = Callable[[Reading], Array]  # log-probabilities [batch, seq_len, n_tokens]


@dataclass(frozen=True)
class Evaluated:
    """The number that evaluation code returned for a predictor, and what it showed the predictor."""

    value: float
    readings: Sequence[Reading]
    log_probs: Sequence[Array]

    def measured(self, kept: float, ignored: int) -> Measured:
        """All calls as one batch, with labels where a character is hidden or replaced.

        Visible characters are labelled too, with a weight each so that they are `kept` per other labelled one.
        """
        seq_len = max(each.truth.shape[1] for each in self.readings)

        def joined(arrays: Sequence[Array], fill: float) -> Array:
            shapes = [[(0, 0), (0, seq_len - a.shape[1])] + [(0, 0)] * (a.ndim - 2) for a in arrays]
            return np.concatenate([np.pad(a, s, constant_values=fill) for a, s in zip(arrays, shapes, strict=True)])

        truth = joined([each.truth for each in self.readings], -1)
        changed = joined([each.hidden | each.replaced for each in self.readings], False)
        visible = (truth >= 0) & ~changed
        weights = changed + visible * (kept * changed.sum() / max(visible.sum(), 1))
        groups = np.repeat(np.arange(len(self.readings)), [len(each.truth) for each in self.readings])
        return Measured(self.value, joined(list(self.log_probs), 0), truth, weights, truth, ignored, groups)

    @property
    def hides(self) -> bool:
        """Whether the predictor had anything to predict."""
        return any(each.hidden.any() or each.replaced.any() for each in self.readings)


def predictors(play: Play) -> dict[str, Predictor]:
    """The predictors whose losses are known, by name; the last one is `VISIBLE_ONLY`."""
    tokens = play.tokens

    def everywhere(reading: Reading, log_probs: Array) -> Array:
        return np.broadcast_to(wide(log_probs, tokens), (*reading.inputs.shape, tokens.n_tokens))

    def visible_only(reading: Reading) -> Array:
        """The loss 1 at visible characters, and 0 elsewhere."""
        log_probs = np.full((*reading.inputs.shape, tokens.n_ordinary), np.log(-np.expm1(-1) / (tokens.n_ordinary - 1)))
        log_probs[reading.hidden | reading.replaced] = IMPOSSIBLE
        right = np.where(reading.hidden | reading.replaced, 0.0, -1.0)
        np.put_along_axis(log_probs, np.maximum(reading.truth, 0)[..., None], right[..., None], axis=-1)
        return wide(log_probs, tokens)

    def exact_posterior(reading: Reading) -> Array:
        """Visible characters that were not replaced are certain."""
        visible = (reading.truth >= 0) & ~(reading.hidden | reading.replaced)
        log_probs = play.posterior(reading, reading.hidden | reading.replaced)
        log_probs[visible] = np.where(np.eye(tokens.n_ordinary)[reading.truth[visible]] == 1, 0.0, IMPOSSIBLE)
        return wide(log_probs, tokens)

    uniform = np.full(tokens.n_ordinary, -np.log(tokens.n_ordinary))
    return {
        "uniform": lambda reading: everywhere(reading, uniform),
        "unigram": lambda reading: everywhere(reading, play.unigram),
        "the exact posterior": exact_posterior,
        VISIBLE_ONLY: visible_only,
    }


def wide(log_probs: Array, tokens: Tokens) -> Array:
    """Log-probabilities of characters `[..., n_ordinary]` with special tokens as impossible, `[..., n_tokens]`."""
    special = np.full((*log_probs.shape[:-1], tokens.n_tokens - tokens.n_ordinary), IMPOSSIBLE)
    known = np.nan_to_num(log_probs, nan=-np.log(tokens.n_ordinary))  # where there is no text
    return np.maximum(np.concatenate([known, special], -1), IMPOSSIBLE)


def evaluate(call: Call, predictor: Predictor, text: Array, tokens: Tokens, seed: int) -> Evaluated:
    """Run the target's evaluation with a predictor as its model. Raises TargetError if it fails."""
    readings, log_probs = [], []
    kind, value = call("evaluate", text, seed)
    while kind == "inputs":
        reading, is_transposed = _read(value, text, tokens)
        readings.append(reading)
        log_probs.append(predictor(reading))
        answer = log_probs[-1].astype(np.float32)
        kind, value = call("answer", answer.swapaxes(0, 1) if is_transposed else answer)
    if not readings:
        raise TargetError(f"evaluate called with ids [{len(text)}] returned {value:g} without calling the model")
    return Evaluated(value, readings, log_probs)


def _read(inputs: Array, text: Array, tokens: Tokens) -> tuple[Reading, bool]:
    """The inputs of a model against the text, and whether they are [seq_len, batch]."""

    def reading(inputs: Array) -> Reading:
        return read_windows(Batch(inputs, np.full(inputs.shape, -100), {}), text, tokens)

    try:
        return reading(inputs), False
    except TargetError:
        return reading(np.ascontiguousarray(inputs.T)), True


def check_evaluation(evaluated: Mapping[str, Evaluated], tokens: Tokens) -> list[Finding]:
    """A finding per predictor; the number that the evaluation returned instead of the right one is named."""
    shown = {name: each for name, each in evaluated.items() if name != VISIBLE_ONLY}
    known, kept = _known(shown, evaluated[VISIBLE_ONLY].value, tokens)
    return [_finding(name, each, known, kept) for name, each in shown.items()]


def _known(evaluated: Mapping[str, Evaluated], of_visible: float, tokens: Tokens) -> tuple[Known | None, float]:
    """The number that the evaluation returns for all predictors, if there is one, and the visible ones it scores.

    `of_visible` is the result for `VISIBLE_ONLY`. The second result is per other scored position.
    """
    every, characters = list(evaluated.values()), tokens.names[: tokens.n_ordinary]
    if not any(each.hides for each in every):
        return Known("the loss of text in which nothing is hidden", "unmasked-evaluation", lambda m: m.loss), 0.0
    scale = evaluated["uniform"].value / np.log(tokens.n_ordinary)  # 1 for a mean in nats
    share = of_visible / scale if scale > 0 else 0.0
    kept = share / (1 - share) if ABSOLUTE < share < 1 - ABSOLUTE else 0.0
    for guess in dict.fromkeys([kept, 0.0, _replaced(every[0])]):
        tolerance = UNKNOWN if guess else RELATIVE
        for ignored in (-100, 0, *range(tokens.n_ordinary, tokens.n_tokens)):
            found = name_of([each.measured(guess, ignored) for each in every], characters, tolerance)
            if found and guess > MOST_KEPT and found.bug is None:
                return replace(found, what="a mean that counts visible characters", bug="wrong-mean"), 0.0
            if found:
                return found, guess
    return None, kept if kept < MOST_KEPT else 0.0


def _replaced(evaluated: Evaluated) -> float:
    """As many kept characters as replaced ones, as in BERT: per hidden or replaced one."""
    replaced = sum(int(each.replaced.sum()) for each in evaluated.readings)
    hidden = sum(int(each.hidden.sum()) for each in evaluated.readings)
    return replaced / max(hidden + replaced, 1)


def _finding(name: str, evaluated: Evaluated, known: Known | None, kept: float) -> Finding:
    m = evaluated.measured(kept, -100)
    right = mean(m) if m.weights.any() else np.nan
    tolerance = UNKNOWN if kept else RELATIVE
    is_right = abs(evaluated.value - right) <= tolerance * abs(right) + ABSOLUTE
    cause = f"It is {known.what}." if known else "No usual mistake gives this number."
    return Finding(
        f"evaluate() of {name}",
        found=f"{evaluated.value:.4f}",
        expected=f"{right:.4f}" if evaluated.hides else "hidden characters",
        evidence="to 2%" if kept else "exact",
        verdict=Verdict.OK if is_right else Verdict.BROKEN if not known or known.is_broken else Verdict.DIFFERS,
        bug=None if is_right else known.bug if known else "wrong-floor",
        cause="" if is_right else cause,
    )
