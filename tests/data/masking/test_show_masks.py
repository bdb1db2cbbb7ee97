import pytest

from data.masking.show_masks import main
from data.masking.strategies import STRATEGIES


def test_it_shows_every_strategy_and_draws_them(corpus_file, tmp_path, capsys):
    assert main(["--corpus", str(corpus_file), "--png", str(tmp_path / "masks.png")]) == 0
    shown = capsys.readouterr().out
    for name in (*STRATEGIES, "mixture"):
        assert f"\n{name}: " in shown
    assert shown.count("runs of ") > len(STRATEGIES)
    assert "[" in shown
    assert "\x1b" not in shown  # no colours in a pipe
    assert (tmp_path / "masks.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_hidden_is_marked_and_the_text_is_all_there(corpus_file, capsys):
    main(["--corpus", str(corpus_file), "--strategy", "whole_word", "--masking-prob", "0.5"])
    shown = capsys.readouterr().out
    passage = shown[shown.index("\n", 1) + 1 : shown.rindex("\nhidden 50.0%")]
    assert passage.replace("[", "").replace("]", "") == corpus_file.read_text()[:480]


def test_wrong_input_ends_with_2(tmp_path):
    assert main(["--corpus", str(tmp_path / "nowhere.txt")]) == 2
    with pytest.raises(SystemExit) as end:
        main(["--strategy", "nonsense"])
    assert end.value.code == 2
