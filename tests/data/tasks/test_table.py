import gzip
import json
import os

import pytest

from data.tasks.table import from_table
from data.tasks.task import CHARACTER, LABELS, NUMBER, PAIR, WORDS, Example
from data.text.sources import CorpusError
from tests.conftest import one_line, written


def table(tmp_path, *rows):
    return from_table(written(tmp_path / "a.csv", "\n".join(rows)))


def texts(part):
    return {example.texts[0] for example in part}


def rows_of_each_label(form, n):
    """Rows of the labels x and y in turn; a form has a label and a number."""
    return [form.format(label="xy"[i % 2], i=i // 2) for i in range(2 * n)]


def test_a_text_that_trains_never_tests(tmp_path):
    rows = rows_of_each_label("{label}{i},{label}", 10)
    task = table(tmp_path, "text,label", "same,x", *rows, "same,y")

    assert "same" in texts(task.pool)
    assert not texts(task.pool) & texts(task.test)
    assert (len(task.pool), len(task.test)) == (14, 7)


@pytest.mark.parametrize("n", [90, 170, 340])  # 0.7 * n is just below an integer
def test_the_first_70_percent_are_for_training(tmp_path, n):
    task = table(tmp_path, "text,label", *rows_of_each_label("{label}{i},{label}", n))
    assert len(task.pool) == 2 * n * 7 // 10


def test_a_text_counts_once(tmp_path):
    with_split = rows_of_each_label("{label}{i},{label},train", 4)
    without_split = rows_of_each_label("{label}{i},{label},", 4)

    with one_line(CorpusError, "2 of 2 labels .* such as 'x' with 4"):
        table(tmp_path, "text,label,split", *with_split, *without_split)


def test_a_csv_file_may_split_itself(tmp_path):
    rows = rows_of_each_label('"{label}, {i}",{label},train', 5)
    # with a byte order mark
    task = table(tmp_path, "\ufefftext,label,split", *rows, '"four\nfive",x,test')

    assert len(task.pool) == 10
    assert task.pool[3] == Example(("y, 1",), "y")
    assert task.test == [Example(("four\nfive",), "x")]


def test_pairs_of_texts_stay_apart(tmp_path):
    rows = rows_of_each_label("a{i},b{i},{label}", 10)
    task = table(tmp_path, "text_a,text_b,label", *rows)

    assert task.kind == PAIR
    assert task.pool[0] == Example(("a0", "b0"), "x")


def test_characters_have_labels(tmp_path):
    task = table(
        tmp_path, "text,labels", *rows_of_each_label("a{i}{label},x{label}z", 10)
    )
    assert (task.kind, task.labels) == (CHARACTER, ["x", "y", "z"])
    assert task.pool[1] == Example(("a0y",), ("x", "y", "z"))
    assert (len(task.pool), len(task.test)) == (14, 6)


ROWS = [(f"{'xy'[i % 2]} {i}", i % 2) for i in range(20)]


def in_json(**others):
    return "".join(
        json.dumps({"text": text, "label": label} | others) + "\n"
        for text, label in ROWS
    )


def separated_by(delimiter):
    rows = [("text", "label"), *ROWS]
    return "".join(f"{text}{delimiter}{label}\n" for text, label in rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", separated_by("\t")),
        ("a.csv", separated_by(";")),
        ("a.jsonl", in_json()),
        ("a.jsonl", in_json(id=3, meta={"n": 1})),
        ("a.csv.gz", separated_by(",")),
        ("a.jsonl.gz", in_json()),
    ],
)
def test_tables_of_all_formats_are_the_same_task(tmp_path, name, content):
    path = tmp_path / name
    data = content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    task = from_table(path)

    assert task.pool == [Example((text,), str(label)) for text, label in ROWS[:14]]
    assert len(task.test) == 6


def test_a_text_may_be_of_any_length(tmp_path):
    long = "a, " * 100_000
    rows = rows_of_each_label(f'"{{label}}{{i}}{long}",{{label}}', 10)

    assert len(table(tmp_path, "text,label", *rows).pool[0].texts[0]) > 300_000


def test_texts_have_several_labels(tmp_path):
    rows = rows_of_each_label("{label}{i},{label}|z", 10)
    task = table(tmp_path, "text,labels", *rows, "none,", "one,z")

    assert (task.kind, task.labels) == (LABELS, ["x", "y", "z"])
    assert task.pool[0] == Example(("x0",), ("x", "z"))
    assert {example.label for example in task.test} >= {(), ("z",)}


def test_several_labels_may_be_a_list(tmp_path):
    rows = [
        json.dumps({"text": f"a{i}", "labels": ["b", "a"][: i % 3]}) for i in range(20)
    ]
    task = from_table(written(tmp_path / "a.jsonl", "\n".join(rows)))

    assert [example.label for example in task.pool[:3]] == [(), ("b",), ("a", "b")]


def test_each_label_may_have_a_column(tmp_path):
    header = "text,label:a,label:b"
    rows = [f"a{i},{i % 2},{'false' if i % 3 else 'true'}" for i in range(20)]
    task = table(tmp_path, header, *rows)

    assert task.kind == LABELS
    assert [example.label for example in task.pool[:3]] == [("b",), ("a",), ()]
    with pytest.raises(CorpusError, match="row 21"):
        table(tmp_path, header, *rows, "a,maybe,0")


def test_a_separator_may_be_the_label_of_a_character(tmp_path):
    task = table(tmp_path, "text,labels", *rows_of_each_label("{label}{i},{label}|", 9))
    assert (task.kind, task.labels) == (CHARACTER, ["x", "y", "|"])


def test_texts_have_numbers(tmp_path):
    task = table(tmp_path, "text,number", *(f"a{i},{i / 4}" for i in range(20)))

    assert task.kind == NUMBER
    assert (len(task.pool), len(task.test)) == (14, 6)
    assert task.pool[1] == Example(("a1",), "0.25")


def test_words_have_tags(tmp_path):
    rows = [f"Ann  saw{i} Rome, B-PER O B-LOC" for i in range(10)]
    task = table(tmp_path, "text,tags", *rows)

    assert (task.kind, task.labels) == (WORDS, ["B-LOC", "B-PER", "O"])
    assert task.pool[0] == Example(("Ann  saw0 Rome",), ("B-PER", "O", "B-LOC"))

    lines = [json.dumps({"text": f"a {i}", "tags": ["O", "X"]}) for i in range(10)]
    listed = from_table(written(tmp_path / "a.jsonl", "\n".join(lines)))

    assert listed.pool[0] == Example(("a 0",), ("O", "X"))


WRONG_FILES = {
    "No such file or directory": lambda file: None,
    "not a regular file": os.mkfifo,
    "cannot read .*not a regular file": lambda file: file.symlink_to("/dev/zero"),
    "is not UTF-8 text": lambda file: file.write_bytes(b"\xff"),
}


@pytest.mark.parametrize("message", WRONG_FILES)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path, message):
    WRONG_FILES[message](tmp_path / "a.csv")
    with one_line(CorpusError, message):
        from_table(tmp_path / "a.csv")


SCORES = "".join(f"{i},{i / 20}\n" for i in range(20))
ONE_LABEL = "".join(f"{i},x\n" for i in range(20))
LABEL_IN_TEST = "".join(f"a{i},xy\n" for i in range(9)) + "b,z\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,kind\na,b\n", "it has text, kind"),
        ("text,label,label\na,b,c\n", "two columns of one name: text, label, label"),
        ("Text,Label\na,b\n", "it has Text, Label"),
        ("text label\na b\n", "it has text label"),
        ("text,label\n", "it has no rows"),
        ("", "is empty"),
        ("text,number\na,b\n", "row 1 of .*: could not convert .*'b'"),
        ("text,number\na,nan\n", "row 1 of .*: the number nan is not finite"),
        ("text,number,label\na,1,b\n", "needs the columns"),
        ("text,label\na,\n", "row 1 of .*: the column label is empty"),
        ("text,label\na\n", "has 1 fields in line 2, but 2 in its first"),
        ("text,label,split\na,b,dev\n", "split must be train or test"),
        ("text,label\nwell, a,x\n", "line 2, .*: quote fields that contain commas"),
        ('text,label\na,"x\ny"\n', "row 1 of .* cannot be printed"),
        ("text,label\na,\x1b[31mred\n", "row 1 of .* cannot be printed"),
        ("text,labels\na,\x07\n", "row 1 of .* cannot be printed"),
        ("text,labels\n" + LABEL_IN_TEST, "has the label 'z'"),
        ("text,labels\nab,xy\n", "has 0 different training texts: 5 are needed"),
        ("text,labels\nab,x\n", "row 1 of .* one character per character"),
        ("text,tags\na b,O O\na b,O\n", "row 2 of .* has 2 words, and 1 tags"),
        ("text,tags\n \t, \n", "row 1 of .* has 0 words, and 0 tags"),
        ("text,label\na,x\nb,x\nc,y\n", "2 of 2 labels .* such as 'x' with 1"),
        (
            f"text,label\n{SCORES}",
            "20 of 20 labels .* such as '0.0' with 0: .* column number",
        ),
        (f"text,label\n{ONE_LABEL}", "two labels are needed"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(tmp_path, content, message):
    with one_line(CorpusError, message):
        table(tmp_path, content)


GLUE = {  # a file's columns and the values of a row, and those that are read
    "SST-2": ("sentence\tlabel", 'so "good {i}\t{label}', 'so "good {i}'),
    "RTE": ("index\tsentence1\tsentence2\tlabel", "{i}\tA {i}\tB\t{label}", "A {i}"),
    "QNLI": ("index\tquestion\tsentence\tlabel", "{i}\tA {i}\tB\t{label}", "A {i}"),
    "MRPC": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "{label}\t1\t2\tA {i}\tB",
        "A {i}",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "{i}\t1\t2\tA {i}\tB\t{label}",
        "A {i}",
    ),
}


@pytest.mark.parametrize("name", GLUE)
def test_files_of_glue_are_read_as_they_are(tmp_path, capsys, name):
    header, form, first = GLUE[name]
    path = written(
        tmp_path / "train.tsv", "\n".join([header, *rows_of_each_label(form, 20)])
    )
    task = from_table(path)

    assert task.kind == (PAIR if name != "SST-2" else "text")
    assert task.labels == ["x", "y"]
    assert task.pool[0].texts[0] == first.format(i=0)
    assert len(task.pool) == 28
    assert capsys.readouterr().out.startswith("train.tsv: reads the columns ")
