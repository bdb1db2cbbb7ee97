"""A correct pipeline in plain PyTorch: BERT's masks, a small transformer, cross-entropy. The broken ones import it."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

BATCH, SEQ_LEN, D_MODEL = 32, 64, 64
IGNORED = -100


class Encoder(nn.Module):
    """Embedding with learned positions, pre-norm layers, a linear decoder."""

    def __init__(self, n_tokens, n_layers=2):
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, D_MODEL)
        self.positions = nn.Parameter(torch.randn(SEQ_LEN, D_MODEL) * 0.02)
        nn.init.normal_(self.embedding.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(D_MODEL, 4, 4 * D_MODEL, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(D_MODEL), enable_nested_tensor=False)
        self.decoder = nn.Linear(D_MODEL, n_tokens)

    def forward(self, inputs):
        x = self.embedding(inputs) + self.positions[: inputs.shape[1]]
        return self.decoder(self.layers(x))


def make_model(tokens):
    return Encoder(tokens.n_tokens)


def windows(ids, seed, training):
    """Windows `[BATCH, SEQ_LEN]` of a text: random ones without end to train on, or all of them in order."""
    if not training:
        yield from ids[: len(ids) // SEQ_LEN * SEQ_LEN].view(-1, SEQ_LEN).split(BATCH)
        return
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(ids) - SEQ_LEN, (BATCH, 1), generator=generator)
        yield ids[starts + torch.arange(SEQ_LEN)]


def mask(x, tokens, ignored=IGNORED):
    """BERT's masks: 15% are selected; 80% of them show [MASK], 10% a random character, 10% their own."""
    selected = torch.rand(x.shape) < 0.15
    kind = torch.rand(x.shape)
    inputs = torch.where(selected & (kind < 0.8), tokens.mask, x)
    random = tokens.first_character + torch.randint(tokens.n_ordinary, x.shape)
    inputs = torch.where(selected & (kind > 0.9), random, inputs)
    return inputs, torch.where(selected, x, ignored)


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        yield mask(x, tokens)


def loss_and_logits(model, batch):
    inputs, labels = batch
    logits = model(inputs)
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED), logits


def evaluate(model, ids, tokens):
    """The mean loss in nats per masked token."""
    total = n = 0
    with torch.no_grad():
        for batch in make_batches(ids, tokens, seed=0, training=False):
            n_labelled = int((batch[1] != IGNORED).sum())
            total += loss_and_logits(model, batch)[0].item() * n_labelled
            n += n_labelled
    return total / n
