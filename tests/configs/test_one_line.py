import errno
import subprocess
import sys

import pytest

from configs.command_line.program import fail, run_main
from runs.files import ROOT


@pytest.fixture(autouse=True)
def restored_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # `run_main` replaces it


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("two\nlines\tand a bell \a", "two lines and a bell \\x07"),
        ("\x1b[31mred\ud800", "\\x1b[31mred\\ud800"),
        ("a" * 5_000 + ": try b", "a" * 500 + " ... " + "a" * 493 + ": try b"),
    ],
    ids=["space", "control characters", "long"],
)
def test_an_error_is_one_printable_line(monkeypatch, capsys, message, line):
    monkeypatch.setattr(sys, "argv", ["/somewhere/experiment.py"])
    assert fail(ValueError(message)) == 2
    assert capsys.readouterr().err == f"experiment.py: {line}\n"


@pytest.mark.parametrize(
    ("error", "code", "end"),
    [
        (
            OSError(errno.ENOSPC, "No space left", "x"),
            1,
            "'x': free some space on this disk\n",
        ),
        (KeyboardInterrupt(), 130, ": interrupted\n"),
    ],
)
def test_a_full_disk_and_ctrl_c_while_a_program_starts_are_one_line(
    capsys, error, code, end
):
    def main(_):
        raise error

    with pytest.raises(SystemExit, match=rf"^{code}$"):
        run_main(main)

    assert capsys.readouterr().err.endswith(end)


@pytest.mark.parametrize(
    ("output", "code"), [("> /dev/full", 1), (">&-", 0), ("| true", 0)]
)
def test_an_output_that_cannot_be_written_is_one_line_at_most(output, code):
    command = f"{sys.executable} experiment.py --help {output}"
    done = subprocess.run(
        command, shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=120
    )

    assert done.returncode == code
    assert done.stderr.count("\n") == (code == 1)
    assert ("No space left on device" in done.stderr) == (code == 1)
