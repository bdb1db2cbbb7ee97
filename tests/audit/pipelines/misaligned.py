"""Logits compared with the label of the next position: a causal model's loss on a masked model."""

import torch
from plain import IGNORED, make_batches, make_model
from torch.nn.functional import cross_entropy

__all__ = ["evaluate", "loss_and_logits", "make_batches", "make_model"]


def loss_and_logits(model, batch):
    inputs, labels = batch
    logits = model(inputs)
    loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
    return loss, logits


def evaluate(model, ids, tokens):
    losses, n = 0.0, 0
    with torch.no_grad():
        for inputs, labels in make_batches(ids, tokens, 0, training=False):
            n_labelled = int((labels[:, 1:] != IGNORED).sum())
            losses += loss_and_logits(model, (inputs, labels))[0].item() * n_labelled
            n += n_labelled
    return losses / n
