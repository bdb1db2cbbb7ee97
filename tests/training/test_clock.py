import time

import torch

from training.clock import TrainingClock


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
