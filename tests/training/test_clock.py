import time

import torch

from training.clock import TrainingClock


def test_between_two_waits_for_a_device_it_goes_on(monkeypatch):
    """A schedule by the clock would otherwise fall in stairs, and a short run have few of them."""
    waits = []
    monkeypatch.setattr(TrainingClock, "_synchronize", lambda self: waits.append(self))
    clock = TrainingClock(torch.device("cuda"))
    clock.start()
    seen = {clock.seconds for _ in range(1_000)}
    assert len(waits) == 1  # at its start
    assert len(seen) > 100
    monkeypatch.setattr("training.clock.SECONDS_BETWEEN_SYNCHRONIZATIONS", 0.0)
    assert clock.seconds > max(seen)
    assert len(waits) == 2


def test_it_counts_training_and_nothing_else():
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
