"""How well a run predicts text as a writer: likelihoods of its validation text, in nats and bits
per character."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from configs.branch import derived_seed
from data.bound_masks import bound_masks
from data.play.automaton import Automaton
from data.protocol import ValidationSet, evenly_spaced
from data.vocabulary import Vocabulary
from trained.load import Trained
from training.callbacks.any_order_bound import any_order_bound
from writing.judge import Judge, ratio
from writing.sampler import Sampler

# nats and bits per character, the standard error of the nats over windows, n windows
Likelihood = dict[str, Any]
ROUNDS = 8  # masks per window for the bound
# for the likelihood in an order, which needs a pass of the model per token
WINDOWS = 32
ORDERS = ("left-to-right", "random", "confidence")
TEXTS = 16  # that are written per setting, to be judged by the grammar
CHARS_PER_STEP = (1, 4)


def bound(trained: Trained, validation: ValidationSet) -> Tensor:
    """The any-order bound of each validation window, `[n_windows]` nats: see
    `training.callbacks.any_order_bound`."""
    windows = validation.windows
    masks = bound_masks(validation, ROUNDS)
    losses = any_order_bound(
        trained.model,
        windows,
        masks,
        trained.vocabulary.mask_token,
        validation.attention_mask,
    )
    return losses * _is_written(windows, trained.vocabulary).sum(1)


@torch.no_grad()
def order_losses(
    sampler: Sampler, texts: Tensor, generators: Sequence[Generator]
) -> Tensor:
    """-log P(token | tokens written before it) in nats at each position of `texts` `[n, length]`:
    float64, same shape.

    A sampler that writes one token at a time is an autoregressive model: if the order is known, or
    follows from the tokens written so far, the probability of a text is the product of those of its
    tokens (Uria et al. 2014; Hoogeboom et al. 2022). The order matters, because the conditionals of
    a masked model belong to no single joint distribution.

    The order is the sampler's, from blanks only; its temperature is taken as 1. With the order
    `random`, each text has an order of its own, and the mean over orders is the any-order bound.
    Special tokens such as `[UNK]` are visible from the beginning, and their loss is 0.
    """
    ids = torch.where(texts < sampler.n_ordinary, sampler.mask_token, texts)
    losses = torch.zeros(texts.shape, dtype=torch.float64, device=texts.device)
    while True:
        blanks = ids == sampler.mask_token
        if not blanks.any():
            return losses
        chosen, log_probs = sampler.choose(ids, blanks.any(1).long(), generators)
        losses[chosen] = -log_probs.gather(1, texts[chosen][:, None])[:, 0]
        ids = torch.where(chosen, texts, ids)


def in_orders(trained: Trained, validation: ValidationSet) -> dict[str, Likelihood]:
    """The likelihood of evenly spaced validation windows if the run writes them in each of
    `ORDERS`.

    It is exact, except for the order `random`: each window is written in one random order, a sample
    of the bound.
    """
    some = validation.take(evenly_spaced(validation.n_windows, WINDOWS))
    windows = some.windows.cpu()
    likelihoods = {}
    for order in ORDERS:
        generators = [Generator().manual_seed(i) for i in range(len(windows))]
        sampler = replace(_sampler(trained, order), documents=some.attention_mask)
        losses = order_losses(sampler, windows, generators).sum(1)
        likelihoods[order] = likelihood(losses, windows, trained.vocabulary)

    return likelihoods


def grammar_measures(
    automaton: Automaton, trained: Trained, validation: ValidationSet
) -> dict[str, Any]:
    """The play's entropy rate in nats per character, the exact likelihood of its validation
    windows, and the grammar's judgement of texts that the run writes in each of `ORDERS` (see
    `Judge.measures`).
    """
    judge = Judge(automaton, trained.vocabulary, validation.windows.shape[1])
    losses = -judge.posterior.floor.log_probability(
        judge.posterior.to_floor(validation.windows)
    )
    exact = likelihood(losses, validation.windows, trained.vocabulary)
    blanks = torch.full((TEXTS, judge.length), trained.vocabulary.mask_token)
    texts = {}
    for order in ORDERS:
        for chars_per_step in CHARS_PER_STEP:
            generators = [
                Generator().manual_seed(derived_seed(i, "texts")) for i in range(TEXTS)
            ]
            n_steps = judge.length // chars_per_step
            *_, written = _sampler(trained, order).write(blanks, n_steps, generators)
            texts[f"{order}, {chars_per_step} per step"] = judge.measures(written)

    return {"entropy_rate": judge.entropy_rate, "exact": exact, "texts": texts}


def _sampler(trained: Trained, order: str) -> Sampler:
    vocabulary = trained.vocabulary
    return Sampler(trained.model, vocabulary.mask_token, vocabulary.n_ordinary, order)


def _is_written(windows: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Where windows `[n_windows, seq_len]` hold tokens that a model writes: all but special ones."""
    return windows.cpu() < vocabulary.n_ordinary


def n_characters(windows: Tensor, vocabulary: Vocabulary) -> Tensor:
    """The number of characters of windows `[n_windows, seq_len]` without special tokens, `[n_windows]`."""
    lengths = 1 if vocabulary.lengths is None else vocabulary.lengths[windows.cpu()]
    return (_is_written(windows, vocabulary) * lengths).sum(1)


def likelihood(losses: Tensor, windows: Tensor, vocabulary: Vocabulary) -> Likelihood:
    """The likelihood per character of windows `[n_windows, seq_len]`, from their `losses`
    `[n_windows]` in nats."""
    nats, stderr = ratio(losses, n_characters(windows, vocabulary))
    return {
        "nats": nats,
        "bits": nats / math.log(2),
        "stderr": stderr,
        "n": len(windows),
    }
