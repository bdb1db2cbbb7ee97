"""Losses of runs with tokens that are not characters, and of runs with [UNK]."""

import math
from functools import partial

import pytest
import torch

from configs.callbacks import validation_pairs
from data.corpus import CorpusError
from data.play.grammar import play
from data.protocol import N_MASKED, protocol_masks
from data.references.losses import without_counting
from tests.conftest import configs_for, written
from trained.measures import (
    breakdown,
    first_characters,
    hard_masks,
    one_at_a_time,
    sweep,
    word_masks,
)
from training.callbacks.per_character import per_character
from training.evaluation import evaluate

of_bytes_and_bpe = pytest.mark.parametrize("tokens", ["bytes", "bpe:280"])
TEXT = "the cat sat on mat a dog ran to red door why do birds sing Come in O King für Zoë 中文"
WORDS = {*TEXT.split(), "中", "文"}  # one word or two, with ICU or without


@pytest.fixture(scope="module")
def long_file(tmp_path_factory, sentences):
    """A text long enough for validation windows of 256 BPE tokens, with characters of several
    bytes."""
    lines = sentences.splitlines(True)
    lines[::7] = [line + "中文 für Zoë!\n" for line in lines[::7]]
    return written(tmp_path_factory.mktemp("text") / "text.txt", "".join(lines))


@of_bytes_and_bpe
def test_the_loss_per_character_is_the_sum_over_the_characters_that_are_hidden(
    long_file, tokens
):
    configs = configs_for(long_file, data__tokens=tokens)
    vocabulary = configs.data.vocabulary
    validation = configs.data.validation_set

    assert validation.windows.shape[1] == 256
    assert torch.equal(validation.masked, protocol_masks(validation.n_windows))

    result = evaluate(configs.network, validation, vocabulary.mask_token, seq_len=256)

    losses, _ = result.outcomes
    n_chars = 0

    for token in validation.windows[validation.masked].tolist():
        # the characters that begin in the token: all but bytes inside of one
        n_chars += sum(not 0x80 <= byte < 0xC0 for byte in vocabulary.surfaces[token])

    row = per_character(result, validation, vocabulary.lengths)

    assert row["loss.valid_per_character"] == pytest.approx(
        losses.sum().item() / n_chars
    )


@of_bytes_and_bpe
def test_a_run_with_other_tokens_trains(train, long_file, tokens):
    trained = train(data__corpus=long_file, data__tokens=tokens, training__max_steps=40)
    first, last = trained.callbacks.rows
    vocabulary = trained.configs.data.vocabulary

    assert last["loss.valid"] < first["loss.valid"] < math.log(vocabulary.n_ordinary)

    loss = last["loss.valid_per_character"]
    assert last["bits_per_character"] == pytest.approx(loss / math.log(2))
    assert loss < last["loss.valid"] or tokens == "bytes"
    assert set(trained.run.reference_lines()) == {"uniform", "unigram"}

    lines = "\n".join(trained.callbacks.lines)
    assert "(counting needs data.tokens=characters" in lines
    assert trained.run.curves_path.exists()


def test_the_play_says_that_its_floor_does_not_apply(train, monkeypatch):
    monkeypatch.setattr("data.corpus.play", partial(play, 30_000))
    trained = train(data__corpus="play", data__tokens="bytes", training__max_steps=2)

    assert "counting and the floor need data.tokens=characters" in "\n".join(
        trained.callbacks.lines
    )
    assert "excess" not in trained.callbacks.rows[0]


def test_unknown_characters_are_no_targets_of_the_protocol(long_file):
    configs = configs_for(long_file, data__unknown_below=0.012)
    model = configs.network
    vocabulary = configs.data.vocabulary
    validation = configs.data.validation_set
    unknown = validation.windows == vocabulary.unknown_token
    drawn = protocol_masks(len(unknown))

    assert (unknown & drawn).any()
    assert torch.equal(validation.masked, drawn & ~unknown)

    result = evaluate(model, validation, vocabulary.mask_token, seq_len=64)
    losses, correct = result.outcomes
    n_targets = int(validation.masked.sum())

    assert len(losses) == n_targets
    assert result.loss == pytest.approx(losses.mean().item())
    assert result.accuracy == pytest.approx(correct.double().mean().item())

    by_class = breakdown(result.outcomes, validation, vocabulary)["by_class"]
    assert sum(row["n"] for row in by_class.values()) == n_targets
    assert (
        0
        < sweep(model, validation, vocabulary.mask_token)["50%"]["n"]
        < unknown.numel() / 2
    )
    assert hard_masks(model, validation, vocabulary)

    n_single = one_at_a_time(model, validation, vocabulary.mask_token)["n"]
    assert n_single < 32 * min(64, len(unknown))
    assert "counting needs" in without_counting(vocabulary, configs.data.loaded)


def test_a_validation_text_of_unknown_characters_is_refused(tmp_path):
    text = "ab" * 4_500 + "".join(chr(0x4E00 + i) for i in range(1_000))
    configs = configs_for(
        written(tmp_path / "text.txt", text), data__unknown_below=0.01
    )

    with pytest.raises(CorpusError, match=r"\[UNK\]"):
        _ = configs.data.validation_set


@pytest.mark.parametrize("tokens", ["characters", "bytes", "bpe:280"])
def test_word_masks_hide_whole_words(long_file, tokens):
    configs = configs_for(long_file, data__tokens=tokens)
    vocabulary = configs.data.vocabulary
    validation = configs.data.validation_set
    windows = validation.windows
    masked = word_masks(validation, vocabulary)

    assert 30 < masked.sum(1).min() <= masked.sum(1).max() <= N_MASKED

    edge = torch.zeros(1)

    for window, row in zip(windows, masked, strict=True):
        changes = row.int().diff(prepend=edge, append=edge).nonzero()
        for begin, end in changes.view(-1, 2).tolist():
            hidden = vocabulary.decode(window[begin:end]).split()
            assert set(hidden) <= WORDS


def test_classes_are_those_of_the_first_visible_character(long_file):
    vocabulary = configs_for(long_file, data__tokens="bpe:280").data.vocabulary
    firsts = dict(zip(vocabulary.ordinary, first_characters(vocabulary), strict=True))
    # the last is the byte 0xE4 alone
    expected = {"Ġthe": "t", "Ċ": "\n", "Ġ": " ", "ä": "\0"}

    assert firsts | expected == firsts


@of_bytes_and_bpe
@pytest.mark.parametrize(
    ("objective", "strategy"), [("nsp", "span"), ("nsp", "entity"), ("sop", "adaptive")]
)
def test_pairs_begin_at_the_first_token_of_a_speech(
    tmp_path, tokens, objective, strategy
):
    speeches = [f"ANN:\nthe cat sät on mat {i}." for i in range(1_000)]
    keys = {
        "data__tokens": tokens,
        f"objective__{objective}": True,
        "masking__strategy": strategy,
    }
    configs = configs_for(written(tmp_path / "play.txt", "\n\n".join(speeches)), **keys)
    vocabulary = configs.data.vocabulary
    batch = configs.data.training_windows.draw(16, 64)

    for ids, segments in zip(batch.tokens, batch.extras["segments"], strict=True):
        assert vocabulary.decode(ids[:1]) == "[CLS]"

        second = vocabulary.decode(ids[segments == 1])
        assert second.endswith("[SEP]")
        assert objective == "sop" or second.startswith("ANN:\n")

    masked = configs.masking.strategy(batch.tokens, batch.offsets, 0.3)

    # special tokens are never masked
    assert int(masked.labels.max()) < vocabulary.n_ordinary

    _ = validation_pairs(configs)
