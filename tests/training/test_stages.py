from training.schedule import Stage, stage_at

STAGES = [Stage(0.3, 32, 0.3), Stage(0.6, 64, 0.2), Stage(1.0, 256, 0.15)]


def test_a_row_holds_up_to_its_border_and_the_next_from_there_on():
    at = {progress: stage_at(STAGES, progress).seq_len for progress in (0.0, 0.2999, 0.3, 0.5999, 0.6, 0.9999)}
    assert at == {0.0: 32, 0.2999: 32, 0.3: 64, 0.5999: 64, 0.6: 256, 0.9999: 256}


def test_the_last_row_holds_to_the_end_and_beyond():
    assert stage_at(STAGES, 1.0) is stage_at(STAGES, 1.2) is STAGES[-1]
