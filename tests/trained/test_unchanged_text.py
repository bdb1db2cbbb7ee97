"""predict.py and generate.py change the blanks of a text alone."""

import json

import pytest

import generate
import predict
from tests.trained.conftest import of_all_tokens
from trained.piped import Line
from trained.rows import Table

APACHE = (
    '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a_b.gif HTTP/1.0" 200 2326'
)
SMILES = r"F/C=C\F.C[C@@H](N)C(=O)O\[MASK]\_\n"
ABC = "|:GABc dedB|_e2^d \\\n[V:1] z4:|"
CHINESE = "中文，没有空格。İstanbul ＡＢＣ"
LINES = "one \r\n\n  two\t\ufeff\r\n\r\rthree  three"  # without an end
TEXTS = [APACHE, SMILES, ABC, CHINESE, LINES]
BLANK = "<?>"


@of_all_tokens
def test_text_without_blanks_comes_out_byte_for_byte(trained, printed, piped):
    text = "\r\n".join(TEXTS)
    piped(text.encode())

    assert printed(predict.main, trained.run.path, "--blank", BLANK) == text

    piped(text.replace(r"\[MASK]\_", "").replace("_", "").encode())
    assert printed(predict.main, trained.run.path) == text.replace(
        r"\[MASK]\_", ""
    ).replace("_", "")


@of_all_tokens
@pytest.mark.parametrize("text", TEXTS)
def test_only_blanks_change(trained, printed, text):
    before, after = text[:9], text[9:]
    words = [before + BLANK + after, "--blank", BLANK, "--raw"]
    output = printed(predict.main, trained.run.path, *words)

    assert output.startswith(before)
    assert output.endswith(after + "\n")
    assert "\N{REPLACEMENT CHARACTER}" not in output


@of_all_tokens
def test_a_prompt_never_changes(trained, printed):
    prompt = APACHE + BLANK + SMILES + CHINESE
    words = ["--prompt", prompt, "--blank", BLANK, "--raw"]
    output = printed(generate.main, trained.run.path, *words)

    assert output.startswith(APACHE)
    assert output.endswith(SMILES + CHINESE + "\n")


def test_unknown_characters_are_told(plain, printed, capsys):
    assert predict.main([str(plain.run.path), "the c_t é中"]) == 0

    output, error = capsys.readouterr()
    assert output == "the cat é中\n"
    assert error.startswith("2 unknown")


JSON_ROWS = r"""{"id":1.50,"meta":{"body": "the c_t \u4E2D"}, "t\n":[1, {"a":"}"}]}

 {"meta":{"body":"one\nt_o"} ,"id":  2 }
{"id":3,"meta":{"body":null}}
{"meta":null}""".replace("\n", "\r\n")


def test_rows_of_json_keep_what_is_not_a_blank(plain, printed, piped):
    piped(JSON_ROWS.encode())
    output = printed(predict.main, plain.run.path, "--column", "meta.body")
    filled = [json.loads(line) for line in output.split("\r\n") if line]
    first, second, *_ = (each["meta"]["body"] for each in filled[:2])

    assert first == "the cat 中"
    assert second.startswith("one\nt")
    assert len(second) == len("one\nt_o")

    changed = output.replace(json.dumps(first), r'"the c_t \u4E2D"')
    assert changed.replace(json.dumps(second), r'"one\nt_o"') == JSON_ROWS


CSV_ROWS = """id;"text";more\r
1;"the c_t; ""he"" said\r
no";"x"\r
\r
02;the c_t;\r
3;;"a ""b"" "\r
"""


def test_rows_of_csv_keep_what_is_not_a_blank(plain, printed, piped):
    piped(CSV_ROWS.encode())
    output = printed(predict.main, plain.run.path, "--column", "text")

    assert output == CSV_ROWS.replace("c_t", "cat")


@pytest.mark.parametrize(
    "rows",
    [
        'a\ttext\n"5\tthe c_t\n6" x\t"no\n',
        'a\ttext\n"5"\t"the ""c_t"""\n1\tthe c_t',
        "\ufefftext,a\nthe c_t,1\n",
        'text\n"the c_t"\n',
        '\ufeff{"text":"the c_t"}\n{"text":""}',
    ],
)
def test_tables_of_other_makers(plain, printed, piped, rows):
    piped(rows.encode())
    output = printed(predict.main, plain.run.path, "--column", "text")

    assert output == rows.replace("c_t", "cat")


@pytest.mark.parametrize(
    ("rows", "before", "message"),
    [
        ("", "", "empty"),
        ("a,b\n1,2\n", "", "'a', 'b'"),
        ('{"a":1}\n', "", "line 1: it has no column 'text', but 'a'"),
        ('{"text":"a c_t"}\n{"text":1}\n', '{"text":"a cat"}\n', "line 2"),
        ('{"text":"a c_t"}\n[1]\n', '{"text":"a cat"}\n', "line 2: it is no JSON"),
        ("text,a\na c_t,1\na,1,2\n", "text,a\na cat,1\n", "line 3: it has 3 fields"),
        ('text,a\na c_t,1\n"a,2\n', "text,a\na cat,1\n", "line 3"),
    ],
)
def test_damaged_rows_are_one_line_after_those_before(
    plain, refusal, piped, rows, before, message
):
    piped(rows.encode())
    words = [plain.run.path, "--column", "text"]

    assert message in refusal(predict.main, *words, before=before)


def test_rows_come_as_they_arrive():
    contents = [[b"x,text"], [b'a,"1'], [b'2"', b"b,3"], [], [b"c,4"]]
    n_sent = 0

    def batches():
        nonlocal n_sent
        for batch in contents:
            n_sent += 1
            yield [Line("", each) for each in batch]

    rows = Table(batches(), ["text"]).batches()
    arrived = [([row.values[0] for row in batch], n_sent) for batch in rows]

    assert arrived == [(["1\n2", "3"], 3), (["4"], 5)]
