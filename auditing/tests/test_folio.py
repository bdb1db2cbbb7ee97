"""Folio itself is audited where it is importable: its maskers, its model, and the floor of its
play.

The audit does not need Folio; these tests are skipped without it.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from auditing.pipelines.play import Automaton
from auditing.tests.conftest import mostly_slow
from auditing.tests.museum.correct import Correct
from auditing.tests.museum.exhibit import MASK, N_ORDINARY, RATE, Pair, TensorMasker

pytest.importorskip("data.masking", reason="Folio is not importable")

from data.masking import MLM, Corruption, Masker, SegmentMasker
from data.masking.strategies import STRATEGIES
from data.play.floor import Floor
from data.play.grammar import grammar, play


def folio_mlm(seed: int) -> TensorMasker:
    of = TensorMasker
    mlm = MLM(
        padding_token=of.padding_token,
        mask_token=MASK,
        no_mask_tokens=of.no_mask_tokens,
        n_tokens=of.n_tokens,
    )
    masker = TensorMasker(mlm)
    masker.masking_prob = mlm.masking_prob  # states the rate
    return masker


def folio_masker(strategy: str) -> Callable[[int], TensorMasker]:
    """Folio's maskers: exactly round(rate * length) positions per window, at random offsets of a
    play."""

    def make(seed: int) -> TensorMasker:
        text = play(50_000, seed=seed)
        weights = torch.zeros(TensorMasker.n_tokens).index_fill(
            0, torch.arange(N_ORDINARY), 1.0
        )
        kind = Masker
        if strategy != "random":
            kind = partial(SegmentMasker, segmenter=STRATEGIES[strategy](text))
        masker = kind(
            Corruption(mask_token=MASK, random_token_weights=weights),
            seed=seed,
            device=torch.device("cpu"),
            no_mask_tokens=range(N_ORDINARY, TensorMasker.n_tokens),
        )

        def mask(x: torch.Tensor) -> Pair:
            offsets = torch.randint(len(text) - x.shape[1], (len(x), 1)) + torch.arange(
                x.shape[1]
            )
            batch = masker(x, offsets, RATE)
            labels = torch.full_like(x, -100).flatten()
            labels[batch.positions] = batch.labels
            return batch.inputs, labels.view(x.shape)

        return TensorMasker(mask)

    return make


NEVER_PADDED = frozenset({"selected-by-length"})
AT_ENDS = frozenset({"position-dependent"})
# Folio's Masker has a generator of its own, in the training process
IN_ONE_PROCESS = {"workers": 0}
MASKERS = [
    Correct("Folio's MLM", folio_mlm),
    Correct("random", folio_masker("random"), NEVER_PADDED, IN_ONE_PROCESS),
    Correct("span_characters", folio_masker("span_characters"), options=IN_ONE_PROCESS),
    Correct("whole_word", folio_masker("whole_word"), AT_ENDS, IN_ONE_PROCESS),
]


@pytest.mark.usefixtures("few_windows")
@pytest.mark.parametrize(
    "masker",
    mostly_slow({each.name: each for each in MASKERS}, {"Folio's MLM", "whole_word"}),
)
def test_maskers_raise_no_alarm(masker: Correct) -> None:
    report = masker.audit(seed=0, workers=0)
    assert [finding.line() for finding in masker.alarms(report)] == []


def test_its_model_has_nothing_broken(audit) -> None:
    report = audit("folio_model.py")
    assert [each.line() for each in report.findings if each.verdict == "broken"] == []


def test_posteriors_are_those_of_its_floor() -> None:
    """`play.npz` holds the automaton of Folio's grammar."""
    automaton = Automaton()
    assert automaton.alphabet == grammar().alphabet
    windows = torch.from_numpy(automaton.write(2_560)).view(10, 256)
    wanted = torch.from_numpy(np.random.default_rng(0).random(windows.shape) < RATE)
    shown = windows.masked_fill(wanted, automaton.n_chars)
    expected = Floor(grammar()).posteriors(shown, wanted, 0.01)
    torch.testing.assert_close(automaton.posteriors(shown, wanted, 0.01), expected)
