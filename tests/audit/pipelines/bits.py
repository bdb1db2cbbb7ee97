"""Evaluation in bits, reported as nats."""

import math

import plain
from plain import loss_and_logits, make_batches, make_model

__all__ = ["evaluate", "loss_and_logits", "make_batches", "make_model"]


def evaluate(model, ids, tokens):
    return plain.evaluate(model, ids, tokens) / math.log(2)
