"""An ignored label of 0, which is also the newline."""

import torch
from plain import make_model, mask, windows
from torch.nn.functional import cross_entropy

__all__ = ["evaluate", "loss_and_logits", "make_batches", "make_model"]


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        yield mask(x, tokens, ignored=0)


def loss_and_logits(model, batch):
    inputs, labels = batch
    logits = model(inputs)
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0), logits


def evaluate(model, ids, tokens):
    losses, n = 0.0, 0
    with torch.no_grad():
        for inputs, labels in make_batches(ids, tokens, 0, training=False):
            n_labelled = int((labels != 0).sum())
            losses += loss_and_logits(model, (inputs, labels))[0].item() * n_labelled
            n += n_labelled
    return losses / n
