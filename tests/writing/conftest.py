from functools import cache

import pytest
import torch
from torch import nn

from tests.data.masking.helpers import generator
from tests.model.conftest import model_of
from tests.trained.conftest import shared_run


class Joint(nn.Module):
    """The exact model of texts that come from a table of their probabilities, by summing over all
    texts that fit."""

    def __init__(self, table):
        """`table` has one axis per position, each over the tokens; the token after them is the
        blank."""
        super().__init__()
        self.table = table

    def forward(self, inputs, positions):
        length = inputs.shape[1]
        rows = inputs.tolist()
        answers = [
            self.log_posterior(i % length, *rows[i // length])
            for i in positions.tolist()
        ]
        return torch.stack(answers)

    @cache  # noqa: B019  (the model lives as long as the tests, and there are few texts)
    def log_posterior(self, column, *tokens):
        fitting = self.table
        for axis, token in enumerate(tokens):
            if token < len(self.table):
                others = torch.arange(len(self.table)) != token
                fitting = fitting.index_fill(axis, others.nonzero().flatten(), 0)

        return fitting.movedim(column, 0).flatten(1).sum(1).log()


@pytest.fixture(scope="session")
def joint():
    """Three tokens, three positions that depend on each other; one text in five is impossible."""
    draws = generator()
    table = torch.rand(3, 3, 3, generator=draws, dtype=torch.float64) ** 3
    table[torch.rand(3, 3, 3, generator=draws) < 0.2] = 0
    return Joint(table / table.sum())


def flattened(model, power):
    """The probabilities of a model to a power: conditionals of no joint distribution."""
    return model_of(lambda inputs, positions: power * model(inputs, positions))


def generators(n, seed=0):
    return [generator(seed * 1_000_000 + i) for i in range(n)]


@pytest.fixture(scope="session")
def writer(tmp_path_factory, text_file):
    """A run that has learned little."""
    keys = {"masking__masking_prob": 0.9, "training__max_steps": 20}
    return shared_run(tmp_path_factory, "writer", text_file, **keys)
