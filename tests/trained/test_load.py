"""What happens when a run is loaded."""

import torch

from trained import load


def test_one_thread_is_chosen_while_it_is_clearly_faster(
    train, two_threads, monkeypatch
):
    trained = load.load(train(training__max_steps=2).run)
    measured = load.seconds_by_threads
    forward = trained.model.forward

    # as one's own may be
    monkeypatch.setattr(
        trained.model, "forward", lambda ids, positions: forward(ids, positions)
    )
    for seconds, expected in (
        ({2: 1.0, 1: 0.95}, 2),
        ({2: 1.0, 1: 0.5}, 1),
        ({2: 0.5, 1: 1.0}, 2),
    ):

        def pretended(call, numbers, seconds=seconds):
            assert min(measured(call, numbers).values()) > 0

            return seconds

        monkeypatch.setattr(load, "seconds_by_threads", pretended)
        load.choose_threads(trained, 2)

        assert torch.get_num_threads() == expected
