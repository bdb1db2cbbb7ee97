import os

from runs.files import read_piece


def test_whole_lines_are_read_from_where_the_last_reading_ended(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("one\ntwö\nthr")
    first = read_piece(path, 0, 6)

    assert first == {"from": 0, "to": 4, "text": "one\n"}

    second = read_piece(path, first["to"], 100)

    assert (second["text"], second["to"]) == ("twö\n", 9)
    # a line that is being written
    assert read_piece(path, 9, 100) == {"from": 9, "to": 9, "text": ""}
    assert read_piece(path, 9, 100, may_split=True)["text"] == "thr"

    path.write_text("one\n")  # as resuming a run does

    assert read_piece(path, 9, 100) == {"from": 0, "to": 4, "text": "one\n"}


def test_nothing_but_regular_files_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing"):
        assert read_piece(path, 0, 10)["text"] == ""
