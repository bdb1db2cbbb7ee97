"""Whole pipelines: the planted bugs of auditing/tests/pipelines are named, correct ones are not
accused."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import auditing.pipelines.audit
from auditing.__main__ import main as audit_command
from auditing.errors import TargetError
from auditing.findings import Verdict
from auditing.host import import_target
from auditing.pipelines.audit import _train as train
from auditing.tests.conftest import PIPELINES, mostly_slow
from auditing.tests.pipelines.plain import mean, target

TOO_SHORT = {"worse-than-unigram", "plateau"}  # after so few steps


def bugs(audit, verdict=Verdict.BROKEN):
    return {finding.bug for finding in audit.findings if finding.verdict == verdict}


CORRECT = ["plain.py", "labml_mlm.py", "hugging_face.py"]
CORRECT += [f"correct.py:{name}" for name in ("pairs", "packed", "spans", "any_length")]
FAST_CORRECT = {"hugging_face.py", "correct.py:packed"}


@pytest.mark.parametrize(
    "name", mostly_slow({name: name for name in CORRECT}, FAST_CORRECT)
)
def test_correct_pipelines_have_nothing_broken(audit, name):
    found = audit(name)
    assert bugs(found) == set()
    assert bugs(found, Verdict.DIFFERS) <= TOO_SHORT


BUGS = {
    "attends-over-batch": "batch_second",
    "bits-not-nats": "bits",
    "labels-corrupted": "labels_corrupted",
    "labels-shifted": "labels_shifted",
    "leak-inputs": "left_neighbor",
    "leak-labels": "label_in_decoder",
    "leak-length": "width_of_labels",
    "leak-sampling": "order_of_labels sampler_of_labels",
    "leak-target": "attention_of_text extra_tensor position_ids positions_of_lines text_in_batch",
    "misaligned": "misaligned",
    "not-finite": "empty_batches",
    "nothing-hidden": "unmasked_evaluation unmasked_training",
    "no-left-context": "blocked_attention",
    "no-positions": "no_positions",
    "no-right-context": "blocked_attention causal",
    "softmax-twice": "softmax_twice",
    "weights-left-out": "not_in_optimizer",
    "weights-unchanged": "learning_rate_zero",
    "wrong-ignored-label": "ignored_label_counted",
    "wrong-mean": "mean_over_all",
}


PLANTED = {}
for bug, names in BUGS.items():
    PLANTED |= {f"{bug}, {name}": (bug, name) for name in names.split()}
# Of batches, leaks, the loss, predictions and training.
FAST = (
    "labels_shifted",
    "left_neighbor",
    "extra_tensor",
    "mean_over_all",
    "causal",
    "bits",
)
FAST += ("learning_rate_zero",)


@pytest.mark.parametrize(
    ("bug", "name"),
    mostly_slow(PLANTED, [key for key in PLANTED if key.endswith(FAST)]),
)
def test_planted_bugs_are_named(audit, bug, name):
    found = audit(f"broken.py:{name}")
    assert bug in bugs(found)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("mean_of_means", "mean-of-means"),
        ("dropout_in_evaluation", "not-deterministic"),
        ("masks_that_tell", "leak-masks"),
    ],
)
def test_what_may_be_meant_differs(audit, name, bug):
    found = audit(f"broken.py:{name}")
    assert bug in bugs(found, Verdict.DIFFERS)
    assert found.verdict == Verdict.DIFFERS


@pytest.mark.parametrize(
    ("special_first", "bug"), [(True, None), (False, "padding-is-character")]
)
def test_an_ignored_label_of_0_is_right_if_that_is_padding(audit, special_first, bug):
    functions = vars(import_target(f"{PIPELINES}/broken.py:ignored_label"))
    found = audit(SimpleNamespace(**functions, SPECIAL_FIRST=special_first))
    assert bugs(found) == ({bug} if bug else set())
    # what may follow from the bug
    assert bugs(found, Verdict.DIFFERS) <= {*TOO_SHORT, None}


def test_a_pipeline_that_hides_nothing_is_reported_and_not_trained(audit):
    found = audit(target(batches=lambda x, tokens, training: (x, x.clone())))
    assert "nothing-hidden" in bugs(found)
    assert "not trained" in found.title


def test_a_loss_below_the_floor_is_a_leak(audit):
    def loss_and_logits(model, batch):
        logits = 9 * nn.functional.one_hot(
            batch[1].clamp(min=0), model.decoder.out_features
        ) + model(batch[0])
        return mean(logits, batch[1]), logits

    found = audit(target(loss_and_logits=loss_and_logits))
    (leak,) = [
        finding for finding in found.findings if finding.name == "loss at [MASK], floor"
    ]
    assert leak.bug == "leak-labels"
    assert leak.verdict == Verdict.BROKEN


def test_training_takes_a_second_per_call_at_most():
    """So a limit of a few seconds per call suffices."""
    asked = []

    def call(name, seconds):
        asked.append(seconds)
        return [float("nan")]

    train(call, SimpleNamespace(losses=lambda: []), time.monotonic() + 60)
    assert max(asked) <= 1


def test_the_command_writes_reports_and_returns_the_exit_code(
    tmp_path, monkeypatch, capsys, small_play
):
    monkeypatch.setattr(auditing.pipelines.audit, "Play", lambda: small_play)
    monkeypatch.setattr(auditing.pipelines.audit, "N_CHECKED", 2048)
    monkeypatch.chdir(tmp_path)
    line = f"pipeline {PIPELINES}/broken.py:mean_over_all --minutes 0.01 --json a.json --html a.html"
    assert audit_command(line.split()) == 3
    out, err = capsys.readouterr()
    assert "broken.py:mean_over_all: Encoder, 111,287 weights, AdamW" in " ".join(
        out.split()
    )
    assert "the sum divided by all positions" in " ".join(out.split())
    # said before training
    assert err.index("[wrong-mean]") < err.index("seconds from now")
    assert json.loads(Path("a.json").read_text())["verdict"] == "broken"
    assert "wrong-mean" in Path("a.html").read_text()


def fail(*_):
    raise ValueError("out of ideas")


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (
            {"make_model": lambda tokens: 3},
            "make_model returned 3: it must return a module",
        ),
        (
            {"make_model": fail},
            r"make_model\(Tokens\) raised ValueError: out of ideas \(test_pipeline.py, line \d+\)",
        ),
        ({"make_batches": lambda *_: 3}, "make_batches returned 3"),
        (
            {"make_batches": lambda *_: []},
            r"ids \[90000\] and training=True made no batch",
        ),
        (
            {"make_batches": fail},
            r"make_batches\(int64 \[90000\], .*raised ValueError: out of ideas",
        ),
        (
            {"make_batches": lambda ids, *_: [{"a": ids.view(-1, 10)}]},
            r"gave \{a: int64 \[9000, 10\]\}: a batch must",
        ),
        (
            {
                "make_batches": lambda ids, *_: [
                    (ids.flip(0)[:3200].view(-1, 32), ids[:3200].view(-1, 32))
                ]
            },
            "do not show the text",
        ),
        (
            {"loss_and_logits": fail},
            r"loss_and_logits\(Encoder, .*\[32, 64\].* raised ValueError",
        ),
        (
            {"loss_and_logits": lambda *_: 1.0},
            r"inputs \[32, 64\] returned 1.0: it must return \(loss, logits\)",
        ),
        (
            {
                "loss_and_logits": lambda model, batch: (
                    torch.tensor(1.0),
                    model(batch[0])[:, 1],
                )
            },
            r"returned logits \[32, 55\], but \d+ positions have a label",
        ),
    ],
)
def test_an_invalid_target_is_one_line(audit, functions, message):
    with pytest.raises(TargetError, match=message) as error:
        audit(target(**functions))
    assert "\n" not in str(error.value)
