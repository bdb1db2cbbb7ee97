"""An ignored label that the loss does not ignore: [PAD] is a class that most positions must predict."""

import torch
from plain import make_model, mask, windows
from torch.nn.functional import cross_entropy

__all__ = ["evaluate", "loss_and_logits", "make_batches", "make_model"]


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        yield mask(x, tokens, ignored=tokens.padding)


def loss_and_logits(model, batch):
    inputs, labels = batch
    logits = model(inputs)
    return cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def evaluate(model, ids, tokens):
    with torch.no_grad():
        losses = [loss_and_logits(model, batch)[0] for batch in make_batches(ids, tokens, 0, training=False)]
    return torch.stack(losses).mean().item()
