"""Every kind of target is recognized and called as its users call it; anything else ends in one
line."""

import functools
import inspect
import os
import signal
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from auditing.errors import TargetError
from auditing.masks.calls import Service
from auditing.masks.target import COMMON, Target, read
from auditing.masks.texts import Masked
from auditing.masks.tokens import Facts, MaskOptions, token_ids
from auditing.tests.museum.exhibit import (
    CLS,
    MASK,
    N_ORDINARY,
    PAD,
    SEP,
    TensorMasker,
    bert,
)
from auditing.tests.museum.tokenizers import (
    PIECES,
    WHOLE_WORDS,
    collator,
    learned_bytes,
    learned_unigrams,
    learned_word_pieces,
    word_pieces,
)

TEXT = (
    "the quick brown fox jumps over the lazy dog and the unquick unbrown foxes jumped overly lazily "
    * 20
)


def masked(
    target, width: int = 24, is_ragged: bool = False, **options
) -> tuple[Service, Masked]:
    """The target's service after one call with eight windows."""
    host = Service(target)
    host.probe(MaskOptions(**options))
    host.write("text", 8, width, is_ragged, 3)
    return host, host.mask("text", np.arange(8))


def test_a_function_of_a_tensor():
    host, answer = masked(bert, is_ragged=True)
    assert host.target.kind == "tensor"
    text = host.texts["text"]
    assert answer.inputs.shape == answer.labels.shape == text.ids.shape == (8, 24)
    assert (text.ids[~text.real] == PAD).all()
    # windows with and without special tokens at their edges
    assert set(text.ids[::2, 0]) == {CLS}
    assert CLS not in text.ids[1::2]
    assert SEP in text.ids[0, 1:-1]  # as between two sentences
    assert {answer.dtype, answer.is_modified, answer.is_reused} == {"int64", False}


def test_a_method_and_a_partial_are_described_by_their_objects():
    assert masked(bert.__call__)[0].target.kind == "tensor"
    assert masked(functools.partial(bert))[0].tokens.mask == MASK


@pytest.mark.parametrize("keys", [("input_ids", "labels"), ("inputs", "targets")])
def test_a_function_of_a_batch_dict(keys):
    def mask(batch):
        inputs, labels = bert(batch["input_ids"])
        return {
            keys[0]: inputs,
            keys[1]: labels,
            "attention_mask": batch["attention_mask"],
        }

    host, answer = masked(
        mask, n_tokens=69, mask=MASK, padding=PAD, special=(CLS, SEP), is_ragged=True
    )
    assert host.target.kind == "dict"
    assert np.array_equal(answer.extras["attention_mask"], host.texts["text"].real)


@pytest.mark.parametrize(
    ("options", "further_keys"),
    [
        ({}, ()),
        ({"pad_to_multiple_of": 16}, ()),
        (WHOLE_WORDS, ("offset_mapping",)),
        ({"return_tensors": "np"}, ()),
    ],
)
def test_a_data_collator(options, further_keys):
    target = collator(**options)
    host, answer = masked(target, is_ragged=True)
    assert host.target.kind == "collator"
    assert host.target.keys == (*COMMON, *further_keys)
    assert answer.inputs.shape == (8, 32 if "pad_to_multiple_of" in options else 24)
    text = host.texts["text"]
    assert text.words is not None
    assert (text.ids[:, 0] == target.tokenizer.cls_token_id).all()
    assert target.tokenizer.unk_token_id not in text.ids
    words = text.words[0][text.words[0] >= 0]
    assert len(set(words)) < len(words)  # some words have several tokens


def test_texts_of_a_tokenizer_that_pads_on_the_left():
    tokenizer = word_pieces(PIECES, padding_side="left")
    host, answer = masked(DataCollatorForLanguageModeling(tokenizer), is_ragged=True)
    text = host.texts["text"]
    assert text.real[:, -1].all()
    assert (answer.inputs[~text.real] == tokenizer.pad_token_id).all()


def test_attributes_state_ids_rate_and_shares():
    target = SimpleNamespace(
        vocab_size=100, mask_token_id=torch.tensor(99), pad_id=98, special_tokens=[97, "x"], masking_prob=0.2,
        randomize_prob=0.1, no_change_prob=0.3,
    )  # fmt: skip
    tokens = token_ids(target, MaskOptions())
    assert tokens is not None
    assert (tokens.n_tokens, tokens.mask, tokens.padding, tokens.special) == (
        100,
        99,
        98,
        (97, 98, 99),
    )
    facts = Facts(target, "tensor", tokens)
    assert facts.rate == 0.2
    assert facts.shares == pytest.approx((0.6, 0.1, 0.3))
    stated = token_ids(target, MaskOptions(n_tokens=200, mask=5, special=()))
    assert stated is not None
    assert (stated.n_tokens, stated.mask, stated.special) == (200, 5, (5, 98))


def test_the_mask_token_is_found_by_what_the_target_does():
    host, _ = masked(
        lambda x: (torch.where(torch.rand(x.shape) < 0.2, 41, x), x), n_tokens=50
    )
    assert host.tokens.mask == 41
    assert 41 not in host.texts["text"].ids


@pytest.mark.parametrize(
    ("kind", "target"),
    [("array", lambda x: (np.negative(-x), x)), ("lists", lambda x: (x[:], x))],
)
def test_arrays_and_lists(kind, target):
    _, answer = masked(target, n_tokens=9, kind=kind)
    assert answer.inputs.shape == (8, 24)
    assert answer.inputs.dtype == np.int64


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (5, "the target has the type int, which cannot be called"),
        (
            inspect,
            "the target has the type module: name a function, as file.py:function",
        ),
        (lambda: [5], "instead of a masker: `folio-audit loader` audits batches"),
        (
            TensorMasker,
            "the target TensorMasker is a class: name an instance, or a function that makes one",
        ),
        (lambda: 5, "takes no arguments and returned 5 instead of a masker"),
        (lambda x: x, "the target returned int64 [32, 64] instead of the two"),
        (
            lambda x: (x, x[0]),
            "returned (int64 [32, 64], int64 [64]): the shape of labels is not [32, 64]",
        ),
        (lambda x: (x.float(), x), "inputs holds float32 instead of integers"),
        (
            lambda x: (x, None),
            "returned (int64 [32, 64], None): labels is not a tensor",
        ),
        (lambda x: (x, x.to("meta")), "labels is on another device than the argument"),
        (MagicMock(), "the target returned MagicMock instead of the two tensors"),
        (
            lambda x: exec("raise KeyboardInterrupt"),
            "the target raised KeyboardInterrupt",
        ),
        (lambda x: x / "x", "the target raised TypeError: unsupported operand"),
    ],
)
def test_what_is_no_masker_ends_in_one_line(target, line):
    with pytest.raises(TargetError) as error:
        Service(target).probe(MaskOptions(n_tokens=N_ORDINARY, kind="tensor"))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda: os._exit(0), "exit code 0"),
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal SIGKILL"),
    ],
)
def test_a_target_that_ends_its_process_is_called_in_no_other_way(
    tmp_path, end, status
):
    calls = tmp_path / "calls"

    def ending(x):
        with calls.open("a") as file:
            file.write("call\n")
        end()

    line = rf"called with ids int64 \[32, 64\]: the target ended .* \({status}\)"
    with pytest.raises(TargetError, match=line):
        Service(ending).probe(MaskOptions(n_tokens=N_ORDINARY))
    assert calls.read_text() == "call\n"


def test_the_child_of_a_target_that_forks_does_not_go_on():
    returned = os.pipe()

    def forking(x):
        os.fork()
        return bert(x)

    _, answer = masked(forking, n_tokens=69, mask=MASK)
    assert answer.inputs.shape == (8, 24)
    os.write(returned[1], b".")
    assert os.read(returned[0], 100) == b"."  # a child that went on would write another


def test_workers_are_told_which_they_are():
    def numbered(x):
        worker = torch.utils.data.get_worker_info()
        return torch.full_like(x, worker.num_workers), torch.full_like(x, worker.id)

    host, _ = masked(bert)
    host.target = Target(numbered, "tensor")
    answers = host.mask_in_workers("text", np.arange(8), 2, 1, seed=5)
    assert [[each.labels[0, 0], each.inputs[0, 0]] for (each,) in answers] == [
        [0, 2],
        [1, 2],
    ]
    assert torch.utils.data.get_worker_info() is None


def test_the_reason_is_that_of_the_most_likely_way_to_call_it():
    with pytest.raises(
        TargetError,
        match=r"called with x = int64 \[32, 64\], the target returned int64",
    ):
        Service(lambda x: x).probe(MaskOptions(n_tokens=N_ORDINARY))


def test_a_dict_without_labels():
    with pytest.raises(TargetError, match="which lacks labels"):
        Service(lambda batch: dict(batch)).probe(MaskOptions(n_tokens=9, kind="dict"))


def test_texts_beside_the_ids_are_left_out():
    ids = [[1, 2], [3]]
    found = read({"input_ids": ids, "labels": ids, "text": ["a b", "c"]}, None, 0, "")
    assert found.inputs.tolist() == [[1, 2], [3, 0]]
    assert found.extras == {}


@pytest.mark.parametrize(
    "learned", [learned_word_pieces, learned_unigrams, learned_bytes]
)
def test_words_of_tokenizers_with_other_signs(learned):
    """`##`, `▁` and `Ġ`: pieces that belong to a word have its number, and only they."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=learned(TEXT), pad_token="[PAD]", mask_token="[MASK]"
    )
    host, _ = masked(DataCollatorForLanguageModeling(tokenizer))
    text = host.texts["text"]

    for ids, words in zip(text.ids, text.words, strict=True):
        inside = [ids[words == word] for word in np.unique(words[words >= 0])]
        decoded = [tokenizer.decode(pieces).strip() for pieces in inside]
        whole = tokenizer.decode(ids[words >= 0]).split()
        assert [word for word in decoded if word] == whole
