"""Known predictors take the model's place in evaluation code, whose wrong numbers are named."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from auditing.errors import TargetError
from auditing.finding import Verdict
from auditing.pipelines.evaluation_code import check_evaluation, evaluate, predictors
from auditing.pipelines.stand_in import StandIn, like

SEQ_LEN, BATCH = 32, 24


class Transposing(nn.Module):
    """A sequence-first model with a decoder inside, and an output that is no tensor, as in many projects."""

    def __init__(self, n_tokens):
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, 8)
        self.decoder = nn.Linear(8, n_tokens)

    def forward(self, ids):
        return {"logits": self.decoder(self.embedding(ids.t())).transpose(0, 1)}


def batches(ids, tokens, kept=0.0):
    """Ids `[24, 32]`, what is shown, and what is selected: hidden, but for a share that is kept or replaced."""
    for x in ids[: len(ids) // SEQ_LEN * SEQ_LEN].view(-1, SEQ_LEN).split(BATCH):
        selected, kind = torch.rand(x.shape) < 0.2, torch.rand(x.shape)
        shown = torch.where(selected & (kind >= kept), tokens.mask, x)
        shown = torch.where(selected & (kind > 1 - kept), torch.randint(tokens.n_ordinary, x.shape), shown)
        yield x, shown, selected


def correct(model, ids, tokens, kept=0.0):
    losses = [
        cross_entropy(model(shown)["logits"][selected], x[selected], reduction="none")
        for x, shown, selected in batches(ids, tokens, kept)
    ]
    return torch.cat(losses).mean().item()


def with_kept(model, ids, tokens):
    return correct(model, ids, tokens, kept=0.1)


def in_bits(model, ids, tokens):
    return correct(model, ids, tokens) / math.log(2)


def over_all_positions(model, ids, tokens):
    losses = [
        cross_entropy(model(shown)["logits"][selected], x[selected], reduction="sum") / x.numel()
        for x, shown, selected in batches(ids[: SEQ_LEN * BATCH], tokens)
    ]
    return torch.stack(losses).mean().item()


def with_visible(model, ids, tokens):
    losses = [cross_entropy(model(shown)["logits"].flatten(0, 1), x.flatten()) for x, shown, _ in batches(ids, tokens)]
    return torch.stack(losses).mean().item()


def unmasked(model, ids, tokens):
    losses = [cross_entropy(model(x)["logits"].flatten(0, 1), x.flatten()) for x, _, _ in batches(ids, tokens)]
    return torch.stack(losses).mean().item()


def padding_counted(model, ids, tokens):
    losses = [
        cross_entropy(
            model(shown)["logits"].flatten(0, 1), torch.where(selected, x, tokens.padding).flatten(), reduction="none"
        )
        for x, shown, selected in batches(ids, tokens)
    ]
    return torch.cat(losses).mean().item()


def one_left_out(model, ids, tokens):
    losses = [
        cross_entropy(model(shown)["logits"][selected & (x != 1)], x[selected & (x != 1)], reduction="none")
        for x, shown, selected in batches(ids, tokens)
    ]
    return torch.cat(losses).mean().item()


def shifted(model, ids, tokens):
    losses = [
        cross_entropy(model(shown)["logits"][:, :-1][selected[:, 1:]], x[:, 1:][selected[:, 1:]], reduction="none")
        for x, shown, selected in batches(ids, tokens)
    ]
    return torch.cat(losses).mean().item()


def with_a_penalty(model, ids, tokens):
    return correct(model, ids, tokens) + 0.123


def findings(play, evaluation):
    model = Transposing(play.tokens.n_tokens)
    text = torch.from_numpy(play.validation[:1536])
    started = []

    def call(name, *arguments):
        if name == "evaluate":
            torch.manual_seed(0)
            started.append(StandIn(model, play.tokens.n_tokens, lambda: evaluation(model, text, play.tokens)))
            return started[-1].next()
        return started[-1].next(torch.from_numpy(arguments[0]))

    named = predictors(play).items()
    found = {name: evaluate(call, each, text.numpy(), play.tokens, 0) for name, each in named}
    return check_evaluation(found, play.tokens)


@pytest.mark.parametrize("evaluation", [correct, with_kept])
def test_correct_evaluations_measure_the_floor(small_play, evaluation):
    found = findings(small_play, evaluation)
    assert [each.verdict for each in found] == [Verdict.OK] * 3
    uniform, unigram, posterior = (float(each.found) for each in found)
    assert uniform == pytest.approx(math.log(small_play.tokens.n_ordinary), abs=1e-4)
    assert 0.3 < posterior < 1.0 < 2.5 < unigram < uniform


@pytest.mark.parametrize(
    ("evaluation", "bug"),
    [
        (in_bits, "bits-not-nats"),
        (over_all_positions, "wrong-mean"),
        (with_visible, "wrong-mean"),
        (unmasked, "unmasked-evaluation"),
        (padding_counted, "wrong-ignored-label"),
        (one_left_out, "wrong-ignored-label"),
        (shifted, "misaligned"),
        (with_a_penalty, "wrong-floor"),
    ],
)
def test_wrong_evaluations_are_named(small_play, evaluation, bug):
    posterior = findings(small_play, evaluation)[-1]
    assert posterior.bug == bug
    assert posterior.verdict == Verdict.BROKEN


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        (lambda *_: 1.0, "did not call the model"),
        (lambda model, ids, tokens: model(ids[:64].view(2, 32))["logits"], "it must return a number"),
        (lambda model, ids, tokens: "low" if model(ids[:64].view(2, 32)) else "", "it must return a number"),
    ],
)
def test_what_is_no_evaluation_raises(small_play, evaluation, message):
    with pytest.raises(TargetError, match=message):
        findings(small_play, evaluation)


def test_logits_take_the_shape_of_the_models_own():
    logits = torch.randn(2, 3, 4)
    assert torch.equal(like(logits, torch.zeros(2, 3, 4), None), logits)
    assert torch.equal(like(logits, torch.zeros(6, 4), None), logits.flatten(0, 1))
    assert torch.equal(like(logits, torch.zeros(3, 2, 4), None), logits.transpose(0, 1))
    assert torch.equal(like(logits, torch.zeros(2, 4), torch.tensor([5, 0])), logits.flatten(0, 1)[[5, 0]])
    padded = like(logits, torch.zeros(2, 3, 8), None)
    assert torch.equal(padded[..., :4], logits)
    assert (padded[..., 4:] < -1000).all()
    with pytest.raises(TargetError, match=r"returned float32 \[5, 4\] for ids \[2, 3\]"):
        like(logits, torch.zeros(5, 4), None)
