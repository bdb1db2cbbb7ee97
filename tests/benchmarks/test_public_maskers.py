import runpy
import sys

import pytest


@pytest.mark.parametrize(("word", "message"), [("nonsense", "has 'nonsense' in its name"), ("-x", "-x")])
def test_an_unknown_name_or_option_is_one_line(word, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["public_maskers", word])
    with pytest.raises(SystemExit) as exited:
        runpy.run_module("benchmarks.public_maskers", run_name="__main__")
    (line,) = capsys.readouterr().err.splitlines()
    assert exited.value.code == 2
    assert message in line
