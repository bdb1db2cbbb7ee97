import time

import torch

from training.clock import TrainingClock


def test_the_clock_advances_between_synchronizations(monkeypatch):
    """Otherwise a learning rate that follows the clock would change in large steps."""
    synchronizations = []
    monkeypatch.setattr(TrainingClock, "_synchronize", lambda self: synchronizations.append(self))
    clock = TrainingClock(torch.device("cuda"))
    clock.start()
    seen = {clock.seconds for _ in range(1_000)}
    assert len(synchronizations) == 1  # at the start
    assert len(seen) > 100
    monkeypatch.setattr("training.clock.SECONDS_BETWEEN_SYNCHRONIZATIONS", 0.0)
    assert clock.seconds > max(seen)
    assert len(synchronizations) == 2


def test_the_clock_counts_only_training():
    clock = TrainingClock(torch.device("cpu"))
    assert clock.seconds == 0.0
    clock.start()
    began = time.perf_counter()
    with clock.stopped():
        at_stop = clock.seconds
        while time.perf_counter() - began < 0.05:
            assert clock.seconds == at_stop
    assert at_stop <= clock.seconds < at_stop + 0.05
    clock.stop()
    total = clock.seconds
    assert clock.seconds == total
