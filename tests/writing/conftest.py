from functools import cache

import pytest
import torch
from torch import Generator, nn

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
        self.n_tokens = table.shape[0]

    def forward(self, inputs, positions):
        rows = inputs.tolist()
        length = inputs.shape[1]
        return torch.stack(
            [self.log_posterior(*rows[i // length], column=i % length) for i in positions.tolist()]
        )

    @cache  # noqa: B019  (the model lives as long as the tests, and there are few texts)
    def log_posterior(self, *tokens, column):
        fitting = self.table
        for axis, token in enumerate(tokens):
            if token < self.n_tokens:
                only = torch.zeros(self.n_tokens, dtype=torch.float64).index_fill(
                    0, torch.tensor(token), 1.0
                )
                fitting = fitting * only.view(
                    [-1 if i == axis else 1 for i in range(self.table.dim())]
                )
        return fitting.movedim(column, 0).flatten(1).sum(1).log()


@pytest.fixture(scope="session")
def joint():
    """Three tokens, three positions that depend on each other; one text in five is impossible."""
    generator = torch.Generator().manual_seed(0)
    table = torch.rand(3, 3, 3, generator=generator, dtype=torch.float64) ** 3
    table[torch.rand(3, 3, 3, generator=generator) < 0.2] = 0
    return Joint(table / table.sum())


def flattened(model, power):
    """The probabilities of a model to a power: conditionals of no joint distribution."""
    return model_of(lambda inputs, positions: power * model(inputs, positions))


def generators(n, seed=0):
    return [Generator().manual_seed(seed * 1_000_000 + i) for i in range(n)]


@pytest.fixture(scope="session")
def writer(tmp_path_factory, text_file):
    """A run that has learned little."""
    keys = {"masking__masking_prob": 0.9, "training__max_steps": 20}
    return shared_run(tmp_path_factory, "writer", text_file, **keys)
