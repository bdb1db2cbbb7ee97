"""Audits evaluation code alone: known logits take the model's place, and it must return their loss.

The evaluation does not say which visible characters it scores (BERT keeps a tenth of the selected ones). The known
logits are certain of what is shown, so each of them adds 0 to the sum, and their number follows from the mean.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from auditing.errors import TargetError
from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import Problem, checked
from auditing.pipelines.known_losses import ABSOLUTE, RELATIVE, Measured, log_softmax, name_of
from auditing.pipelines.play_tokens import Array, Tokens
from auditing.pipelines.target_batch import Batch, Call
from auditing.pipelines.windows_read import Reading, read_windows

CERTAIN = 20.0  # as a logit
UNKNOWN = 0.02  # tolerance if visible characters are scored: which ones is not known
MOST_KEPT = 0.5  # visible characters per other one among those that a right evaluation scores


def check_evaluation(call: Call, text: Array, tokens: Tokens, seed: int) -> Finding:
    """Is the result of `evaluate` the mean loss in nats? The number that it returns instead is named."""
    random = np.random.Generator(np.random.PCG64(seed))
    tables = [np.zeros((tokens.n_tokens, tokens.n_tokens), dtype=np.float32)]  # uniform: shows the scale
    for _ in range(2):
        tables.append(np.tile(random.normal(size=tokens.n_tokens).astype(np.float32), (tokens.n_tokens, 1)))
        tables[-1][range(tokens.n_ordinary), range(tokens.n_ordinary)] = CERTAIN
    measured = [_measured(*call("evaluate", text, seed, table), table, text, tokens) for table in tables]
    hides = measured[1].weights.any()
    problem, kept = _problem(measured, tokens) if hides else (("unmasked-evaluation", "Nothing is hidden."), 0.0)
    last = with_kept(measured[-1], kept)
    return checked(
        "evaluate() of known logits",
        f"{last.loss:.4f}",
        f"{last.mean():.4f}" if hides else "hidden characters",
        "to 2%" if kept else "exact",
        problem,
        Verdict.DIFFERS if problem and problem[0] == "mean-of-means" else Verdict.BROKEN,
    )


def _measured(value: float, shown: Sequence[Array], table: Array, text: Array, tokens: Tokens) -> Measured:
    """All calls of the model as one batch, with labels where a character is hidden or replaced."""
    readings = [_read(inputs, text, tokens) for inputs in shown]
    width = max(each.truth.shape[1] for each in readings)

    def joined(arrays: Sequence[Array], fill: int) -> Array:
        return np.concatenate([np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=fill) for a in arrays])

    truth = joined([each.truth for each in readings], -1)
    weights = joined([(each.hidden | each.replaced).astype(float) for each in readings], 0)
    log_probs = log_softmax(table.astype(np.float64))[joined([each.inputs for each in readings], 0)]
    groups = np.repeat(np.arange(len(readings)), [len(each.truth) for each in readings])
    return Measured(value, log_probs, truth, weights, truth, -100, groups)


def _read(inputs: Array, text: Array, tokens: Tokens) -> Reading:
    """The inputs of a model against the text; they may be [seq_len, batch]."""
    try:
        return read_windows(Batch(inputs, np.full(inputs.shape, -100), {}), text, tokens)
    except TargetError:
        return read_windows(Batch(inputs.T, np.full(inputs.T.shape, -100), {}), text, tokens)


def with_kept(m: Measured, kept: float) -> Measured:
    """The same with `kept` visible characters scored, in equal parts."""
    visible = (m.truth >= 0) & (m.weights == 0)
    return replace(m, weights=m.weights + visible * kept / max(visible.sum(), 1))


def _problem(measured: Sequence[Measured], tokens: Tokens) -> tuple[Problem, float]:
    """The bug, if there is one, and the number of visible characters that the evaluation scores."""
    uniform, known, _ = measured
    changed, log_n = known.weights.sum(), np.log(tokens.n_tokens)
    total = known.mean() * changed
    scored = total * uniform.loss / (known.loss * log_n) if known.loss else changed
    kept = scored - changed if scored > changed * (1 + RELATIVE) + ABSOLUTE else 0.0
    for guess in dict.fromkeys((0.0, kept)):
        for ignored in (-100, 0, *range(tokens.n_ordinary, tokens.n_tokens)):
            some = [replace(with_kept(each, guess), ignored=ignored) for each in measured]
            what, bug = name_of(some, tokens.names[: tokens.n_ordinary], UNKNOWN if guess else RELATIVE)
            if what and not bug and guess > MOST_KEPT * changed:
                return ("wrong-mean", "It is a mean that counts visible characters."), guess
            if what:
                return ((bug, f"It is {what}.") if bug else None), guess
    return ("wrong-evaluation", "No usual mistake gives this number."), 0.0
