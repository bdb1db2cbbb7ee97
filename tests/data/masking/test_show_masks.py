import pytest

from data.masking.show_masks import main
from data.masking.strategies import STRATEGIES
from tests.conftest import written


def test_it_shows_and_draws_every_strategy(corpus_file, tmp_path, printed):
    shown = printed(main, "--corpus", corpus_file, "--png", tmp_path / "masks.png")
    for name in (*STRATEGIES, "mixture"):
        assert f"\n{name}: " in shown

    assert shown.count("runs of ") > len(STRATEGIES)
    assert (tmp_path / "masks.png").read_bytes().startswith(b"\x89PNG")


def test_hidden_characters_are_in_brackets_and_all_of_the_passage_is_shown(
    corpus_file, printed
):
    shown = printed(
        main, "--corpus", corpus_file, "--strategy", "whole_word", "--masking-prob", 0.5
    )
    passage = shown[shown.index("\n", 1) + 1 : shown.rindex("\nhidden 50.0%")]

    assert "[" in passage
    assert passage.replace("[", "").replace("]", "") == corpus_file.read_text()[:480]


def test_control_characters_of_the_text_are_escaped(tmp_path, printed):
    path = written(tmp_path / "control.txt", "\x1b]0;owned\x07\x9b2J text\n" * 100)
    shown = printed(main, "--corpus", path, "--strategy", "random")

    assert "\\x" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--corpus", "nowhere.txt"],
        ["--corpus", "\x1b\n.txt"],
        ["--strategy", "nonsense"],
        ["--masking-prob", "2"],
        ["--seed", "99999999999999999999"],
        # not a folder
        ["--corpus", "play", "--strategy", "random", "--png", "Makefile/masks.png"],
    ],
)
def test_wrong_input_ends_with_one_line_and_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        main(arguments)

    error = capsys.readouterr().err
    assert error.startswith("show_masks: error: ")
    assert error.removesuffix("\n").isprintable()
