"""Symptoms of an exercise: the losses of a counting model on its batches, and on correct ones."""

import numpy as np
import torch

from auditing.masks import calls
from auditing.masks.tokens import TokenIds
from auditing.statistics import Array

N_WINDOWS = 1024
WIDTH = 64
N_BATCHES = 32
EPOCHS = 3
N_FOLLOWERS = 12  # characters that may follow each one
IGNORED = -100
POINTS = 8  # of a curve
LABELLED = "labelled (of all, with padding)"
BARS = "▁▂▃▄▅▆▇█"

Batch = tuple[Array, Array]  # inputs and labels [batch, width]


class Service(calls.Service):
    """The service of an audit, which also measures symptoms."""

    def symptoms(self, seed: int) -> str:
        """A table of losses with the exercise's masks and with correct ones; after `probe`."""
        rng = np.random.default_rng(seed)
        windows = np.split(random_text(self.tokens, rng), N_BATCHES)
        usual = [correct_masks(ids, self.tokens, rng) for ids in windows * EPOCHS]
        tensors = [torch.tensor(ids) for ids in windows]
        found = []
        for x in tensors * EPOCHS:  # an exercise may modify them
            inputs, labels = self.function(x)
            found.append((inputs.numpy().copy(), labels.numpy()))

        other = correct_masks(random_text(self.tokens, rng), self.tokens, rng)
        names = ["counting model", "training loss", "validation loss", LABELLED]
        left = ["with this mask", *trained(found, other, self.tokens.n_tokens)]
        right = ["with correct masks", *trained(usual, other, self.tokens.n_tokens)]
        rows = zip(names, left, right, strict=True)
        return "\n".join("  {:33}{:24}{}".format(*row) for row in rows)


def random_text(tokens: TokenIds, rng: np.random.Generator) -> Array:
    """A random chain of characters between special tokens, `[N_WINDOWS, WIDTH]` int64. Most windows
    are shorter and end in padding."""
    n_characters = len(tokens.ordinary)
    chain = np.random.default_rng(0)
    followers = chain.integers(n_characters, size=(n_characters, N_FOLLOWERS))
    ids = np.zeros((N_WINDOWS, WIDTH), dtype=np.int64)
    for column in range(1, WIDTH):
        choices = rng.integers(N_FOLLOWERS, size=N_WINDOWS)
        ids[:, column] = followers[ids[:, column - 1], choices]

    ends = rng.integers(WIDTH // 4, WIDTH, size=N_WINDOWS)
    ids[:, 0], ids[np.arange(N_WINDOWS), ends] = tokens.edges or (0, 0)
    ids[np.arange(WIDTH) > ends[:, None]] = tokens.padding or 0
    return ids


def correct_masks(ids: Array, tokens: TokenIds, rng: np.random.Generator) -> Batch:
    """Inputs and labels by BERT's recipe."""
    selected = (rng.random(ids.shape) < 0.15) & np.isin(ids, tokens.ordinary)
    kind = rng.random(ids.shape)
    random_ids = rng.choice(tokens.ordinary, ids.shape)
    replaced = np.where(kind < 0.8, tokens.mask or 0, random_ids)
    inputs = np.where(selected & (kind < 0.9), replaced, ids)
    return inputs, np.where(selected, ids, IGNORED)


def trained(batches: list[Batch], validation: Batch, n_tokens: int) -> list[str]:
    """The training loss, the validation loss, and the share of positions with a label."""
    # How often each label has each token to its left, at its place, and to its right.
    counts = np.full((3, n_tokens, n_tokens), 0.1)
    losses = []
    for batch in batches:
        losses.append(losses_of(counts, batch))  # before it is learned
        for table, seen, labels in zip(counts, *observations(batch), strict=True):
            np.add.at(table, (labels, seen), 1)

    size = len(losses) // POINTS
    starts = range(0, len(losses), size)
    points = [np.concatenate(losses[i : i + size]).mean() for i in starts]
    levels = [round(point / max(points) * (len(BARS) - 1)) for point in points]
    curve = "".join(BARS[level] for level in levels)
    n_labels = sum(map(len, losses))
    return [
        f"{points[0]:.2f} to {points[-1]:.2f} {curve}",
        f"{losses_of(counts, validation).mean():.2f}",
        f"{n_labels / (N_WINDOWS * WIDTH * EPOCHS):.1%}",
    ]


def observations(batch: Batch) -> Batch:
    """The token to the left of each label, at its place and to its right, and the label; both
    `[3, n_labels]`."""
    inputs, labels = batch
    counted = labels != IGNORED
    seen = np.stack([np.roll(inputs, shift, 1)[counted] for shift in (1, 0, -1)])
    return seen, np.broadcast_to(labels[counted], seen.shape)


def losses_of(counts: Array, batch: Batch) -> Array:
    """The loss of naive Bayes at each label in nats, `[n_labels]`. It is exact for a chain."""
    seen, labels = observations(batch)
    totals = counts[0].sum(1, keepdims=True)
    scores = np.log(totals)
    for table, tokens in zip(counts, seen, strict=True):
        scores = scores + np.log(table / totals)[:, tokens]
    return np.logaddexp.reduce(scores) - scores[labels[0], np.arange(seen.shape[1])]
