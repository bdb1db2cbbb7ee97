"""What happens when a run is loaded."""

import pytest
import torch

from trained import load


@pytest.mark.parametrize(
    ("seconds", "expected"), [({2: 1.0, 1: 0.95}, 2), ({2: 1.0, 1: 0.5}, 1), ({2: 0.5, 1: 1.0}, 2)]
)
def test_one_thread_is_chosen_if_it_is_clearly_faster(train, two_threads, monkeypatch, seconds, expected):
    trained = load.load(train(training__max_steps=2).run)
    measured = load.seconds_by_threads

    def found(call, numbers):
        assert min(measured(call, numbers).values()) > 0
        return seconds

    monkeypatch.setattr(load, "seconds_by_threads", found)
    torch.set_num_threads(2)
    load.choose_threads(trained)
    assert torch.get_num_threads() == expected
