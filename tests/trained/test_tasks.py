import os

import pytest

from configs.keys import ConfigError
from trained.tasks import SPEAKERS, Task, from_csv, inner, speakers

PLAY = "\n\n".join(
    [
        "cut off here",
        *(f"{name}:\n{word} {i}\nand more" for i in range(10) for name, word in (("A", "yes"), ("B B", "no"))),
    ]
)


def texts(part: list[tuple[str, str]]) -> set[str]:
    return {text for text, _ in part}


def test_no_speech_is_in_both_parts_and_no_heading_in_any(shakespeare):
    text = shakespeare[int(len(shakespeare) * 0.9) :]
    task = speakers(text, 256)
    assert len(task.labels) == SPEAKERS
    assert not texts(task.training) & texts(task.test)
    headings = {paragraph.partition("\n")[0] for paragraph in text.split("\n\n")[1:]}
    for speech, speaker in task.training + task.test:
        assert not headings & set(speech.splitlines())
        assert f"{speaker}:\n{speech}" in text
        assert len(speech) <= 256


def test_the_first_speeches_of_each_speaker_train():
    task = speakers(PLAY + "\n\nA:\ncut", 100)
    assert task.training[:2] == [("yes 0\nand more", "A"), ("no 0\nand more", "B B")]
    assert [label for _, label in task.training] == ["A", "B B"] * 7
    assert texts(task.test) == {f"{word} {i}\nand more" for i in (7, 8, 9) for word in ("yes", "no")}


def test_the_speeches_of_rare_speakers_are_left_out():
    play = [f"S{i}:\nline {i} {n}" for i in range(12) for n in range(9 if i < SPEAKERS else 8)]
    task = speakers("\n\n".join(["", *play, ""]), 100)
    assert task.labels == sorted(f"S{i}" for i in range(SPEAKERS))


def test_a_text_that_trains_never_tests(tmp_path):
    file = tmp_path / "a.csv"
    rows = [f"{word} {i},{label}" for label, word in (("x", "one"), ("y", "two")) for i in range(10)]
    file.write_text("\n".join(["text,label", "same,x", *rows, "same,y"]), encoding="utf-8")
    task = from_csv(file, 100)
    assert "same" in texts(task.training)
    assert "same" not in texts(task.test)
    assert not texts(task.training) & texts(task.test)


def test_a_csv_file_may_split_itself(tmp_path):
    file = tmp_path / "a.csv"
    rows = [f'"{label}, {i}",{label},train' for label in "xy" for i in range(5)] + ['"four\nfive",x,test']
    file.write_text("\n".join(["text,label,split", *rows]), encoding="utf-8-sig")  # with a byte order mark
    training = [(f"{label}, {i}", label) for label in "xy" for i in range(5)]
    assert from_csv(file, 100) == Task("a.csv", training, [("four\nfive", "x")])


HEADER = "needs one column text and one column label, in lower case and separated by commas; it has "
SCORES = "".join(f"{i},{i / 20}\n" for i in range(20))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"\xff", "cannot read"),
        (b"text,kind\na,b\n", HEADER + "text, kind"),
        (b"text,label,label\na,b,c\n", HEADER + "text, label, label"),
        (b"Text,Label\na,b\n", HEADER + "Text, Label"),
        (b"text;label\na;b\n", HEADER + "text;label"),
        (b"", HEADER + "none"),
        (b"text,label\na,\n", "row 1 of .*: text and label must not be empty"),
        (b"text,label,split\na,b,dev\n", "split must be train or test"),
        (b"text,label\nwell, a,x\n", "row 1 of .* too many columns"),
        (b"text,label\na,x\nb,x\nc,y\n", "2 of 2 labels have fewer than 5 training texts, such as x with 1"),
        (f"text,label\n{SCORES}".encode(), "20 of 20 labels .* such as 0.0 with 0: .* group numbers into classes"),
        (("text,label\n" + "".join(f"{i},x\n" for i in range(20))).encode(), "two labels are needed"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, content, message):
    file = tmp_path / "a.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as error:
        from_csv(file, 100)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
def test_only_regular_files_are_read(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        from_csv(tmp_path / name, 100)


def test_cut_texts_are_counted():
    assert speakers(PLAY + "\n\nA:\ncut", len("yes 0\nand more")).n_cut == 0
    task = speakers(PLAY + "\n\nA:\ncut", len("yes 0\nand mor"))
    assert task.n_cut == 10  # the speeches of A
    assert max(map(len, texts(task.training))) == len("yes 0\nand mor")


def test_files_with_the_same_name_have_results_of_their_own():
    tasks = [Task("a.csv", [("yes", label)], []) for label in "xyx"]
    names = [task.file_name for task in tasks]
    assert names[0] == names[2] != names[1]
    assert names[0].startswith("a-")


def test_settings_are_chosen_on_training_texts_only():
    task = speakers(PLAY + "\n\nA:\ncut", 100)
    part = inner(task)
    assert sorted(part.training + part.test) == sorted(task.training)
    assert not texts(part.test) & texts(task.test)
    assert [label for _, label in sorted(part.test)] == ["B B", "B B", "A", "A"]  # a fifth of each label, rounded up
