import os

import pytest

from data.tasks.table import from_csv
from data.tasks.task import CHARACTER, PAIR, Example, Task
from data.text.sources import CorpusError
from tests.conftest import one_line, written


def table(tmp_path, *rows: str) -> Task:
    return from_csv(written(tmp_path / "a.csv", "\n".join(rows)))


def texts(part) -> set[str]:
    return {example.texts[0] for example in part}


def test_a_text_that_trains_never_tests(tmp_path):
    rows = [
        f"{word} {i},{label}" for label, word in (("x", "one"), ("y", "two")) for i in range(10)
    ]
    task = table(tmp_path, "text,label", "same,x", *rows, "same,y")
    assert "same" in texts(task.pool)
    assert not texts(task.pool) & texts(task.test)
    assert (len(task.pool), len(task.test)) == (14, 7)


@pytest.mark.parametrize("n", [90, 170, 340])  # 0.7 * n is just below an integer
def test_the_first_70_percent_are_for_training(tmp_path, n):
    task = table(
        tmp_path, "text,label", *(f"{label} {i},{label}" for i in range(n) for label in "xy")
    )
    assert len(task.pool) == 2 * n * 7 // 10


def test_a_text_counts_once(tmp_path):
    rows = [
        f"{label} {i},{label},{split}"
        for label in "xy"
        for i in range(4)
        for split in ("train", "")
    ]
    with one_line(
        CorpusError, "2 of 2 labels have fewer than 5 different training texts, such as 'x' with 4"
    ):
        table(tmp_path, "text,label,split", *rows)


def test_a_csv_file_may_split_itself(tmp_path):
    rows = [f'"{label}, {i}",{label},train' for label in "xy" for i in range(5)] + [
        '"four\nfive",x,test'
    ]
    task = table(tmp_path, "\ufefftext,label,split", *rows)  # with a byte order mark
    assert task.pool == [Example((f"{label}, {i}",), label) for label in "xy" for i in range(5)]
    assert task.test == [Example(("four\nfive",), "x")]


def test_pairs_of_texts_stay_apart(tmp_path):
    task = table(tmp_path, "text_a,text_b,label", *(f"a{i},b{i},{'xy'[i % 2]}" for i in range(20)))
    assert task.kind == PAIR
    assert task.pool[0] == Example(("a0", "b0"), "x")


def test_characters_have_labels(tmp_path):
    task = table(tmp_path, "text,labels", *(f"a{i:02},x{'yx'[i % 2]}z" for i in range(20)))
    assert (task.kind, task.labels) == (CHARACTER, ["x", "y", "z"])
    assert task.pool[1] == Example(("a01",), ("x", "x", "z"))
    assert (len(task.pool), len(task.test)) == (14, 6)


HEADER = "needs the columns text and label, or .* in lower case, separated by commas; it has "
SCORES = "".join(f"{i},{i / 20}\n" for i in range(20))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda file: None, "No such file or directory"),
        (os.mkfifo, "not a regular file"),
        (lambda file: file.symlink_to("/dev/zero"), "not a regular file"),
        (b"\xff", "is not UTF-8: save it"),
        (b"text,kind\na,b\n", HEADER + "text, kind"),
        (b"text,label,label\na,b,c\n", HEADER + "text, label, label"),
        (b"Text,Label\na,b\n", HEADER + "Text, Label"),
        (b"text;label\na;b\n", HEADER + "text;label"),
        (b"", HEADER + "none"),
        (b"text,label\na,\n", "row 1 of .*: the column label is empty"),
        (b"text,label,split\na,b,dev\n", "split must be train or test"),
        (b"text,label\nwell, a,x\n", "row 1 of .* too many columns"),
        (
            ("text,labels\n" + "".join(f"a{i:02},xyx\n" for i in range(9)) + "b,z\n").encode(),
            "has the label 'z'",
        ),
        (b"text,labels\nab,xy\n", "has 0 different training texts: 5 are needed"),
        (b"text,labels\nab,x\n", "row 1 of .* one character per character"),
        (
            b"text,label\na,x\nb,x\nc,y\n",
            "2 of 2 labels have fewer than 5 different training texts, such as 'x' with 1",
        ),
        (
            f"text,label\n{SCORES}".encode(),
            "20 of 20 labels .* such as '0.0' with 0: .* group numbers into classes",
        ),
        (
            ("text,label\n" + "".join(f"{i},x\n" for i in range(20))).encode(),
            "two labels are needed",
        ),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, content, message):
    file = tmp_path / "a.csv"
    content(file) if callable(content) else file.write_bytes(content)
    with one_line(CorpusError, message):
        from_csv(file)
