"""The output of a run on a terminal."""

import os
import re


def test_a_terminal_shows_progress_with_the_time_left_and_colored_guesses(corpus_file, fork_server, tmp_path):
    keys = [f"data.corpus={corpus_file}", "training.max_steps=30", "training.compile=false", "device=cpu"]
    keys += ["training.evaluations=2", "sample.every_evaluations=1", "model.d_model=32", "training.chars_per_step=512"]
    words = ["experiment.py", "--preset", "quick", *keys, f"logs={tmp_path}"]
    process, shown = fork_server.start(words, dict(os.environ), merged=True, terminal=True), b""
    try:
        while block := os.read(process.stdout.fileno(), 65_536):
            shown += block
    except OSError:
        pass  # how Linux reports that the other side has closed
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert re.search(r"Train\S*\s+\d+%", text)
    assert re.search(r"about \d+:\d\d left", text)
    assert "\x1b[32m" in text or "\x1b[31m" in text  # a right or a wrong guess
    assert "loss.valid" in text
