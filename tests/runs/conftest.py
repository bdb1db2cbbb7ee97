"""A run folder with every file that a run writes, and its rows; nothing is trained."""

import pytest

from runs.run_folder import RunFolder


def metrics_row(step):
    """A row of metrics.jsonl as a run writes it."""
    return {
        "step": step,
        "chars": 512 * step,
        "seconds": 0.5 * step,
        "seq_len": 32,
        "learning_rate": 1e-3,
        "loss.train": 3.0 / step,
        "loss.valid": 3.1 / step,
        "loss.valid_stderr": 0.01,
        "loss.valid_at_seq_len": 3.2 / step,
        "accuracy.valid": 0.2,
    }


@pytest.fixture
def run(tmp_path):
    run = RunFolder.create(tmp_path / "logs" / "mlm" / "0123456789ab")
    run.save_about("mlm", "preset quick", ["seed"])
    stages = [{"until": 1.0, "seq_len": 32}]
    run.save_config(
        {"training.stages": stages, "masking.masking_prob": 0.15, "seed": 1}
    )
    run.save_corpus("play", "0" * 64)
    run.save_status("in progress")
    run.save_reference_lines({"uniform": 4.0, "unigram": 3.3})

    for step in (1, 2, 3):
        run.append_metrics(metrics_row(step))
        run.append_event({"event": "noted", "step": step})
        run.append_log(f"step {step}")

    return run
