"""The audit of masks: what is found depends on what is stated, and the numbers are those of the
masker."""

import time

import pytest
import torch

from auditing.errors import TargetError
from auditing.findings import Finding, Verdict
from auditing.masks import assert_masks
from auditing.masks.audit import audit_masks
from auditing.report import Report
from auditing.tests.museum.correct import spans
from auditing.tests.museum.exhibit import (
    CLS,
    MASK,
    N_ORDINARY,
    N_TOKENS,
    PAD,
    SEP,
    Pair,
    TensorMasker,
    bert,
    drawn,
    labels_of,
    only_masks,
    ordinary,
    result,
    seeded,
)

OWN = torch.Generator().manual_seed(0)

pytestmark = pytest.mark.usefixtures("few_windows")


def bugs(report: Report) -> set[tuple[str | None, str]]:
    return {
        (finding.bug, str(finding.verdict))
        for finding in report.findings
        if finding.verdict != Verdict.OK
    }


def named(report: Report, name: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.name == name]
    return finding


def shared(
    x: torch.Tensor, selected: torch.Tensor, masked: float, random: float
) -> Pair:
    """Other shares than 80/10/10."""
    draw = torch.rand(x.shape)
    return result(
        x,
        selected,
        torch.where(draw < masked, 0.0, torch.where(draw < masked + random, 0.85, 1.0)),
    )


@pytest.fixture(autouse=True)
def torch_seed() -> None:
    torch.manual_seed(5)


def test_spans_are_found_and_their_edges_are_no_bug():
    report = audit_masks(spans(), workers=0)
    assert {verdict for _, verdict in bugs(report)} <= {"differs"}
    assert report.summary.startswith("Nearest recipe: SpanBERT (")
    mean_run = named(report, "labels per window").found.rpartition(" ")[2]
    assert 3.0 < float(mean_run) < 3.8  # spans that touch are one run


def test_the_numbers_are_those_of_the_masker():
    report = audit_masks(
        TensorMasker(lambda x: shared(x, drawn(x, 0.2), 0.6, 0.3)), rate=0.2, workers=0
    )
    assert float(named(report, "selected share").found.rstrip("%")) == pytest.approx(
        20.0, abs=0.4
    )
    kinds = named(report, "kinds at selected")
    assert float(kinds.found.partition("%")[0]) == pytest.approx(60.0, abs=1.2)
    assert kinds.verdict == Verdict.DIFFERS  # no recipe has 30% random tokens


def test_mask_is_found_beside_other_special_tokens_that_are_stated():
    report = audit_masks(
        lambda x: bert(x), n_tokens=N_TOKENS, padding=PAD, special=(CLS, SEP), workers=0
    )
    assert "special-selected" not in {bug for bug, _ in bugs(report)}
    assert named(report, "mask token").found == f"id {MASK}"


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="the kind is 'colator': choose one of "):
        audit_masks(bert, kind="colator")


def test_a_rate_is_compared_with_the_stated_one():
    masker = TensorMasker(lambda x: result(x, drawn(x, 0.2)))
    report = audit_masks(masker, rate=0.125, workers=0)
    assert ("too-many-selected", "broken") in bugs(report)
    assert named(report, "selected share").expected == "12.5%"
    assert ("too-few-selected", "broken") in bugs(
        audit_masks(masker, recipe="ModernBERT", workers=0)
    )


def test_a_rate_of_0_is_stated_too():
    masker = spans()
    masker.mlm_probability = 0.0
    rate = named(audit_masks(masker, workers=0), "selected share")
    assert (rate.expected, rate.bug, rate.verdict) == (
        "0%",
        "too-many-selected",
        "broken",
    )


@pytest.mark.slow
def test_spans_that_overlap_are_no_bug():
    rate = named(audit_masks(spans(rate=0.15), rate=0.45, workers=0), "selected share")
    assert float(rate.found.rstrip("%")) == pytest.approx(100 * (1 - 0.85**3), abs=0.5)
    assert (rate.bug, rate.verdict) == ("too-few-selected", "differs")


def grid(x: torch.Tensor) -> Pair:
    """Every seventh position, from a random one on."""
    return result(
        x,
        ((torch.arange(x.shape[1]) + torch.randint(7, (len(x), 1))) % 7 == 0)
        & ordinary(x),
    )


def capped(x: torch.Tensor) -> Pair:
    """At most 20 predictions per window, the first ones."""
    selected = drawn(x)
    return result(x, selected & (selected.cumsum(1) <= 20))


def squeezed(x: torch.Tensor) -> Pair:
    inputs, labels = result(x, drawn(x))
    return inputs.squeeze(), labels.squeeze()


def leaving_out(x: torch.Tensor) -> Pair:
    """Removes one token of some windows; those after it move to the left."""
    moved = torch.cat([x[:, 1:], x[:, -1:]], 1)
    where = torch.rand(len(x), 1) < 0.05
    x = torch.where(where & (torch.arange(x.shape[1]) >= 40), moved, x)
    return result(x, drawn(x))


def of_padded_width(x: torch.Tensor) -> Pair:
    """As many labels in each window, however much of it is padding."""
    ranks = torch.rand(x.shape).masked_fill(~ordinary(x), 2.0).argsort(1).argsort(1)
    return result(x, (ranks < round(0.15 * x.shape[1])) & ordinary(x))


def reseeding(x):
    """Seeds the global generator, although its draws come from one of its own."""
    torch.manual_seed(len(x))
    random = [torch.rand(x.shape, generator=OWN) for _ in range(2)]
    new = torch.randint(N_ORDINARY, x.shape, generator=OWN)
    return result(x, (random[0] < 0.15) & ordinary(x), random[1], new)


class ByteLabels(TensorMasker):
    """Labels in 8 bits, for a vocabulary that needs more."""

    n_tokens = 1000
    mask_token = 999
    padding_token = 998
    no_mask_tokens = [997]

    def __call__(self, x):
        selected = (torch.rand(x.shape) < 0.15) & (x < 997)
        return torch.where(selected, 999, x), labels_of(x, selected).to(torch.int8)


@pytest.mark.parametrize(
    ("masker", "bug", "workers"),
    [
        (
            TensorMasker(lambda x: seeded(x, time.time_ns() % 2**32)),
            ("not-reproducible", "differs"),
            2,
        ),
        (TensorMasker(reseeding), ("global-seed-reset", "broken"), 2),
        (
            TensorMasker(lambda x: result(x, drawn(x) & (torch.rand(len(x), 1) < 0.9))),
            ("empty-windows", "broken"),
            0,
        ),
        pytest.param(
            TensorMasker(lambda x: result(x, drawn(x), mask=SEP)),
            ("mask-is-another", "broken"),
            0,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            TensorMasker(grid), ("regular-pattern", "broken"), 0, marks=pytest.mark.slow
        ),
        pytest.param(
            TensorMasker(capped),
            ("left-truncated", "broken"),
            0,
            marks=pytest.mark.slow,
        ),
        (ByteLabels(None), ("dtype-overflow", "broken"), 0),
        (TensorMasker(squeezed), ("one-window", "broken"), 0),
        pytest.param(
            TensorMasker(leaving_out),
            ("tokens-left-out", "broken"),
            0,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            TensorMasker(of_padded_width),
            ("selected-by-length", "differs"),
            0,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_bug_is_named(masker, bug, workers):
    found = bugs(audit_masks(masker, workers=workers))
    assert bug in found
    assert {verdict for name, verdict in found if name != bug[0]} <= {"differs"}


def test_an_assertion_has_a_line_per_broken_finding():
    with pytest.raises(AssertionError) as error:
        assert_masks(
            lambda: TensorMasker(lambda x: result(x, drawn(x, 0.85))), workers=0
        )
    (line,) = str(error.value).splitlines()
    assert line.startswith("broken: selected share [too-many-selected]: found 8")


def of_ids(first: int, last: int, mask: int):
    """A correct masker of ordinary ids from `first` to before `last`, as a function without
    attributes."""

    def masker(x: torch.Tensor) -> Pair:
        selected = (torch.rand(x.shape) < 0.15) & (x >= first) & (x != mask)
        draw = torch.rand(x.shape)
        replaced = torch.where(
            draw < 0.8,
            mask,
            torch.where(draw < 0.9, torch.randint(first, last, x.shape), x),
        )
        return torch.where(selected, replaced, x), labels_of(x, selected)

    return masker


def test_a_function_without_attributes_needs_the_number_of_tokens():
    masker = of_ids(0, 66, 66)
    with pytest.raises(TargetError, match="state --n-tokens"):
        audit_masks(masker)
    assert_masks(masker, n_tokens=67, workers=0)
    assert ("mask-is-ordinary", "broken") in bugs(
        audit_masks(masker, n_tokens=69, mask=68, special=(67, 68), workers=0)
    )


def test_special_ids_that_are_not_stated_are_no_bug():
    """The audit asks for --special."""
    masker = of_ids(5, 70, 4)
    expected = {
        (bug, "differs")
        for bug in ("replacement-range", "never-selected", "too-few-selected")
    }
    assert bugs(audit_masks(masker, n_tokens=70, workers=0)) == expected
    assert (
        bugs(audit_masks(masker, n_tokens=70, special=(0, 1, 2, 3, 4), workers=0))
        == set()
    )


@pytest.mark.slow
def test_ids_that_occur_rarely_raise_no_alarm():
    """In a large vocabulary, an id has few occurrences, whose own share makes them differ."""
    assert_masks(of_ids(0, 5_000, 5_000), n_tokens=5_001, mask=5_000, workers=0)


def test_special_ids_are_a_sequence():
    with pytest.raises(ValueError, match="special is 0: state a sequence of ids"):
        audit_masks(bert, n_tokens=70, special=0)


def stripped(examples):
    """A collator that takes special tokens off and puts others on, so that [SEP] may stand where
    padding was."""
    rows = []
    for example in examples:
        rows.append([id for id in example["input_ids"] if id < N_ORDINARY])

    width = max(map(len, rows)) + 2
    batch = {"input_ids": [], "labels": []}
    for row in rows:
        text = torch.tensor([CLS, *row, SEP] + [PAD] * (width - 2 - len(row)))
        for name, part in zip(
            batch, result(text[None], drawn(text[None])), strict=True
        ):
            batch[name].append(part)
    return {name: torch.cat(parts) for name, parts in batch.items()}


def keeping(examples, rows=[]):  # noqa: B006
    """The default argument keeps the last row for the next call."""
    rows += [torch.tensor(example["input_ids"]) for example in examples]
    batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    del rows[:-1]
    return dict(zip(("input_ids", "labels"), result(batch, drawn(batch)), strict=True))


def test_rows_of_an_earlier_call_are_found():
    ids = {"n_tokens": N_TOKENS, "mask": MASK, "padding": PAD, "special": (CLS, SEP)}
    assert ("foreign-rows", "differs") in bugs(
        audit_masks(keeping, kind="collator", workers=0, **ids)
    )


@pytest.mark.slow
def test_special_tokens_in_the_place_of_padding_raise_no_alarm():
    ids = {"n_tokens": N_TOKENS, "mask": MASK, "padding": PAD, "special": (CLS, SEP)}
    for seed in (0, 1):
        report = audit_masks(stripped, kind="collator", workers=0, seed=seed, **ids)
        assert {verdict for _, verdict in bugs(report)} <= {"differs"}


@pytest.mark.slow
def test_correct_rounding_of_either_length_is_right():
    """round(0.15 * 126) is also int(0.15 * 128), the length with special tokens."""

    def rounded(x):
        selected = torch.zeros_like(x, dtype=torch.bool)
        for row, chosen in zip(ordinary(x), selected, strict=True):
            places = row.nonzero().flatten()
            chosen[
                places[torch.randperm(len(places))[: max(1, round(0.15 * len(places)))]]
            ] = True
        return result(x, selected & ordinary(x))

    assert ("rounded-down", "differs") not in bugs(
        audit_masks(TensorMasker(rounded), workers=0)
    )


def test_a_stated_recipe_must_be_met():
    """Without one, other shares are another recipe."""
    masker = TensorMasker(lambda x: only_masks(x, drawn(x)))
    assert_masks(masker, workers=0)
    with pytest.raises(AssertionError, match="shares are not those of BERT"):
        assert_masks(masker, recipe="BERT", workers=0)
    never_random = TensorMasker(lambda x: shared(x, drawn(x), 0.8, 0.0))
    assert ("never-random", "broken") in bugs(
        audit_masks(never_random, recipe="BERT", workers=0)
    )


@pytest.mark.slow
def test_roberta_means_new_masks():
    # the same masks in every epoch
    static = TensorMasker(lambda x: seeded(x, int(x.sum())))
    assert_masks(static, recipe="BERT")
    with pytest.raises(AssertionError, match="static-masks"):
        assert_masks(static, recipe="RoBERTa")


def test_an_audit_leaves_the_callers_generators_as_they_were():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    audit_masks(bert)
    assert torch.equal(torch.rand(2), expected)
