"""A correct pipeline in plain PyTorch: BERT's masks, a small transformer, cross-entropy. Others are
made of it."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

BATCH = 32
SEQ_LEN = 64
D_MODEL = 64
IGNORED = -100


class Encoder(nn.Module):
    """Embedding with learned positions, pre-norm layers, a linear decoder."""

    batch_first = True

    def __init__(self, n_tokens):
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, D_MODEL)
        self.positions = nn.Parameter(torch.randn(SEQ_LEN, D_MODEL) * 0.02)
        nn.init.normal_(self.embedding.weight, std=0.02)
        size = (D_MODEL, 4, 4 * D_MODEL, 0.0, "gelu")
        layer = nn.TransformerEncoderLayer(
            *size, batch_first=self.batch_first, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, 2, nn.LayerNorm(D_MODEL), enable_nested_tensor=False
        )
        self.decoder = nn.Linear(D_MODEL, n_tokens)

    def forward(self, inputs, position_ids=None, extra=0, **attention):
        at = torch.arange(inputs.shape[1]) if position_ids is None else position_ids
        return self.decoder(
            self.layers(
                self.embedding(inputs) + self.positions[at] + extra, **attention
            )
        )


def windows(ids, seed, training):
    """Windows `[BATCH, SEQ_LEN]` of a text: random ones without end to train on, or all of them in
    order."""
    if not training:
        yield from ids[: len(ids) // SEQ_LEN * SEQ_LEN].view(-1, SEQ_LEN).split(BATCH)
        return
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(ids) - SEQ_LEN, (BATCH, 1), generator=generator)
        yield ids[starts + torch.arange(SEQ_LEN)]


def mask(x, tokens, ignored=IGNORED):
    """BERT's masks: 15% are selected; 80% of them show [MASK], 10% a random character, 10% their
    own."""
    is_text = (x >= tokens.first_character) & (
        x < tokens.first_character + tokens.n_ordinary
    )
    selected = is_text & (torch.rand(x.shape) < 0.15)
    kind = torch.rand(x.shape)
    inputs = torch.where(selected & (kind < 0.8), tokens.mask, x)
    random = tokens.first_character + torch.randint(tokens.n_ordinary, x.shape)
    inputs = torch.where(selected & (kind > 0.9), random, inputs)
    return inputs, torch.where(selected, x, ignored)


def mean(logits, labels, **options):
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), **options)


def target(
    model=Encoder,
    batches=lambda x, tokens, training: mask(x, tokens),
    loss=mean,
    **functions,
):
    """A pipeline of `model(n_tokens)`, the batches of windows x, and `loss(logits, labels)`, or of
    whole functions.

    Batches are pairs of inputs and labels, or dicts of the labels and the arguments of the model.
    """

    def make_batches(ids, tokens, seed, training):
        yield from (batches(x, tokens, training) for x in windows(ids, seed, training))

    def loss_and_logits(model, batch):
        given = (
            dict(batch)
            if isinstance(batch, dict)
            else {"inputs": batch[0], "labels": batch[1]}
        )
        labels = given.pop("labels")
        logits = model(**given)
        return loss(logits, labels), logits

    made = {
        "make_model": lambda tokens: model(tokens.n_tokens),
        "make_batches": make_batches,
    }
    return SimpleNamespace(**made | {"loss_and_logits": loss_and_logits} | functions)


# the module itself is a target too
make_model, make_batches, loss_and_logits = vars(target()).values()
