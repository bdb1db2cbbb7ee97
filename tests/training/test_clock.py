import torch

from training.clock import TrainingClock


def test_the_clock_advances_between_synchronizations(monkeypatch):
    """Otherwise a learning rate that follows the clock would change in large steps."""
    synchronizations = []
    monkeypatch.setattr(
        TrainingClock, "_synchronize", lambda self: synchronizations.append(self)
    )
    clock = TrainingClock(torch.device("cuda"))
    clock.start()
    seen = {clock.seconds for _ in range(1_000)}

    assert len(synchronizations) == 1  # at the start
    assert len(seen) > 100

    monkeypatch.setattr("training.clock.SECONDS_BETWEEN_SYNCHRONIZATIONS", 0.0)
    assert clock.seconds > max(seen)
    assert len(synchronizations) == 2


def test_the_clock_counts_only_training(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("training.clock.time.perf_counter", lambda: now[0])
    clock = TrainingClock(torch.device("cpu"))

    assert clock.seconds == 0.0

    clock.start()
    now[0] = 3.0

    with clock.stopped():
        now[0] = 50.0
        assert clock.seconds == 3.0

    now[0] = 52.0

    assert clock.seconds == 5.0

    now[0] = 60.0
    clock.skip()  # it was paused since the last reading

    assert clock.seconds == 5.0

    now[0] = 61.0
    assert clock.seconds == 6.0

    clock.stop()
    now[0] = 99.0
    clock.skip()

    assert clock.seconds == 6.0
