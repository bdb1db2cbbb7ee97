"""The audit of masks: correct maskers pass, bugs are named, and the numbers are those of the masker."""

import time

import pytest
import torch

from audit import assert_masks
from auditing.errors import TargetError
from auditing.findings import Finding, Verdict
from auditing.masks.audit import MasksReport, audit_masks
from tests.audit.maskers import N_ORDINARY, Masker, OwnGenerator, RatePerWindow, Spans
from tests.tokenizers import unigram

pytestmark = pytest.mark.usefixtures("few_windows")


def bugs(audit: MasksReport) -> set[tuple[str | None, str]]:
    return {(finding.bug, str(finding.verdict)) for finding in audit.findings if finding.verdict != Verdict.OK}


def named(audit: MasksReport, name: str) -> Finding:
    (finding,) = [finding for finding in audit.findings if finding.name == name]
    return finding


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(5)


@pytest.mark.parametrize(
    ("masker", "recipe"),
    [
        (Masker(), "BERT"),
        (Masker(rate=0.3), "ModernBERT"),
        (Masker(shares=(1.0, 0.0)), "[MASK] only"),
        (RatePerWindow(shares=(1.0, 0.0)), "masked diffusion"),
    ],
)
def test_a_correct_masker_is_all_right(monkeypatch, masker, recipe):
    audit = audit_masks(masker)
    assert bugs(audit) == set()
    assert audit.recipe is not None
    assert audit.recipe.name == recipe
    monkeypatch.setattr("audit.audit_masks", lambda *_, **__: audit)
    assert_masks(masker)


def test_spans_are_found_and_their_edges_are_no_bug():
    audit = audit_masks(Spans())
    assert {verdict for _, verdict in bugs(audit)} <= {"differs"}
    assert audit.recipe is not None
    assert audit.recipe.unit == "span"
    assert 3.0 < audit.structure.mean_run < 3.8  # spans that touch are one run


def test_the_numbers_are_those_of_the_masker():
    audit = audit_masks(Masker(rate=0.2, shares=(0.6, 0.3)), rate=0.2)
    assert float(named(audit, "selected share").found.rstrip("%")) == pytest.approx(20.0, abs=0.2)
    kinds = named(audit, "kinds at selected")
    assert float(kinds.found.partition("%")[0]) == pytest.approx(60.0, abs=0.6)
    assert kinds.verdict == Verdict.DIFFERS  # no recipe has 30% random tokens


def test_a_rate_is_compared_with_the_stated_one():
    assert ("too-many-selected", "broken") in bugs(audit_masks(Masker(rate=0.2), rate=0.15))
    assert ("too-few-selected", "broken") in bugs(audit_masks(Masker(rate=0.2), recipe="ModernBERT"))


def test_random_tokens_are_missed_if_the_recipe_has_them():
    assert ("never-random", "broken") in bugs(audit_masks(Masker(shares=(0.8, 0.0)), recipe="BERT"))


def test_spans_that_overlap_are_no_bug():
    rate = named(audit_masks(Spans(rate=0.45), rate=0.45), "selected share")
    assert float(rate.found.rstrip("%")) == pytest.approx(100 * (1 - 0.85**3), abs=0.5)
    assert (rate.bug, rate.verdict) == ("too-few-selected", "differs")


def test_copies_of_a_generator_in_workers_are_found():
    assert bugs(audit_masks(OwnGenerator())) == {("same-masks-per-worker", "broken")}


class Clock(Masker):
    """Seeded by the system."""

    def select(self, x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(time.time_ns() % 2**32)
        return (torch.rand(x.shape, generator=generator) < self.rate) & (x < N_ORDINARY)


class Grid(Masker):
    """Every seventh position, from a random one on."""

    def select(self, x: torch.Tensor) -> torch.Tensor:
        columns = torch.arange(x.shape[1])
        return ((columns + torch.randint(7, (len(x), 1))) % 7 == 0) & (x < N_ORDINARY)


class Capped(Masker):
    """At most 20 predictions per window, the first ones."""

    def select(self, x: torch.Tensor) -> torch.Tensor:
        selected = super().select(x)
        return selected & (selected.cumsum(1) <= 20)


class ByteLabels(Masker):
    """Labels in 8 bits, for a vocabulary that needs more."""

    n_tokens, mask_token, padding_token, no_mask_tokens = 1000, 999, 998, [997]

    def __call__(self, x):
        selected = (torch.rand(x.shape) < 0.15) & (x < 997)
        return torch.where(selected, 999, x), torch.where(selected, x, -100).to(torch.int8)


@pytest.mark.parametrize(
    ("masker", "bug"),
    [
        (Clock(), ("not-reproducible", "differs")),
        (Grid(), ("regular-pattern", "broken")),
        (Capped(), ("left-truncated", "broken")),
        (ByteLabels(), ("dtype-overflow", "broken")),
    ],
)
def test_a_bug_is_named(masker, bug):
    found = bugs(audit_masks(masker))
    assert bug in found
    assert {verdict for name, verdict in found if name != bug[0]} <= {"differs"}


def test_an_assertion_has_a_line_per_broken_finding():
    with pytest.raises(AssertionError) as error:
        assert_masks(Masker(rate=0.85))
    (line,) = str(error.value).splitlines()
    assert line.startswith("broken: selected share [too-many-selected]: found 8")


def test_a_function_that_makes_a_masker_is_a_target():
    assert_masks(lambda: Masker())


def test_a_function_without_attributes_needs_the_number_of_tokens():
    def mask(x):
        selected = torch.rand(x.shape) < 0.15
        return torch.where(selected, 66, x), torch.where(selected, x, -100)

    with pytest.raises(TargetError, match="state --n-tokens"):
        audit_masks(mask)
    assert ("ids never selected", "ok") not in bugs(audit_masks(mask, n_tokens=67))
    assert_masks(mask, n_tokens=67)
    assert ("mask-is-ordinary", "broken") in bugs(audit_masks(mask, n_tokens=69, mask=68, special=(67, 68)))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"recipe": "BERTA"}, "unknown recipe 'BERTA'"),
        ({"recipe": "BART"}, "BART is denoising"),
        ({"rate": 15.0}, "state a share between 0 and 1"),
        ({"workers": 1}, "at least 2 workers"),
        ({"n_tokens": 1}, "number of tokens"),
    ],
)
def test_invalid_options(options, line):
    with pytest.raises(ValueError, match=line):
        audit_masks(Masker(), **options)


def test_words_that_are_joined_are_named():
    """A tokenizer of the kind of SentencePiece counts the space to the word: offsets have no gaps between words, which
    are the boundaries of words for Transformers 5.23."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=unigram("the quick brown fox jumps over the lazy dog " * 20),
        mask_token="<mask>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    options = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, **options)
    found = bugs(audit_masks(collator, workers=0))
    assert ("words-joined", "broken") in found
    assert {verdict for name, verdict in found if name != "words-joined"} <= {"differs"}


def test_a_stated_recipe_must_be_met():
    """Without one, other shares are another recipe."""
    only_masks = Masker(shares=(1.0, 0.0))
    assert_masks(only_masks)
    with pytest.raises(AssertionError, match="shares are not those of BERT"):
        assert_masks(only_masks, recipe="BERT")


class Static(Masker):
    """The same masks in every epoch: the generator is seeded in every call."""

    def select(self, x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(int(x.sum()))
        return (torch.rand(x.shape, generator=generator) < self.rate) & (x < N_ORDINARY)


def test_roberta_means_new_masks():
    assert_masks(Static(), recipe="BERT")
    with pytest.raises(AssertionError, match="static-masks"):
        assert_masks(Static(), recipe="RoBERTa")


def test_an_audit_leaves_the_callers_generators_as_they_were():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    audit_masks(Masker())
    assert torch.equal(torch.rand(2), expected)


def test_ids_that_occur_rarely_raise_no_alarm():
    """In a large vocabulary, an id has few occurrences, whose own share makes them differ."""
    n_tokens = 5_000

    def masker(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        selected = torch.rand(x.shape) < 0.15
        return torch.where(selected, n_tokens, x), torch.where(selected, x, -100)

    assert_masks(masker, n_tokens=n_tokens + 1, mask=n_tokens, workers=0)


def test_special_ids_that_are_not_stated_are_no_bug():
    """A correct masker whose special ids come first, as a plain function: the audit asks for --special."""

    def masker(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        selected, draw = (torch.rand(x.shape) < 0.15) & (x >= 5), torch.rand(x.shape)
        replaced = torch.where(draw < 0.8, 4, torch.where(draw < 0.9, torch.randint(5, 70, x.shape), x))
        return torch.where(selected, replaced, x), torch.where(selected, x, -100)

    assert_masks(masker, n_tokens=70)
    expected = {(bug, "differs") for bug in ("replacement-range", "never-selected", "too-few-selected")}
    assert bugs(audit_masks(masker, n_tokens=70)) == expected
    assert bugs(audit_masks(masker, n_tokens=70, special=(0, 1, 2, 3, 4))) == set()
    with pytest.raises(ValueError, match="not all below n_tokens = 70"):
        audit_masks(masker, n_tokens=70, special=(0, 70))
