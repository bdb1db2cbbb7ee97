"""predict.py and generate.py change the blanks of a text alone."""

import gzip
import io
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import generate
import predict
from tests.conftest import written
from tests.trained.conftest import of_all_tokens
from trained.load import load_trained
from trained.piped import Line
from trained.rows import Table
from trained.score import scores_of
from trained.template import Notation, read_template

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


def test_the_output_is_in_utf8_as_the_input(plain, piped, monkeypatch):
    text = CHINESE + LINES
    prompt = ["--prompt", text, "--length", str(len(text) + 1)]
    for main, words in ((predict.main, []), (generate.main, prompt)):
        piped(text.encode())
        output = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "latin-1"))

        assert main([str(plain.run.path), *words]) == 0

        sys.stdout.flush()
        assert output.getvalue().startswith(text.encode())


def test_a_file_as_text_is_told(plain, tmp_path, capsys):
    assert predict.main([str(plain.run.path), str(written(tmp_path / "x", "a"))]) == 0
    assert "1 text(s) name a file" in capsys.readouterr().err


def test_lines_of_json_as_text_are_told(plain, piped, capsys):
    piped(b'{"text": "the c_t"}\n{"text": "a"}\n')
    assert predict.main([str(plain.run.path)]) == 0
    assert "2 text(s) of JSON" in capsys.readouterr().err


@of_all_tokens
def test_models_read_line_breaks_in_lines(trained):
    def ids_of(text, **notation):
        template = read_template(text, trained.vocabulary, Notation(**notation))
        assert template.filled(template.ids)[0] == text
        return template.ids.tolist()

    line = r"the cat sat\na dog ran\\n"

    assert ids_of(line, in_lines=True) == ids_of("the cat sat\na dog ran\\n")
    assert ids_of(line, in_lines=True, raw=True) == ids_of(line)


def test_a_line_break_in_a_line_is_no_unknown_character(plain, printed, piped):
    """As a backslash is."""
    piped(rb"the c_t\na dog \\n \\")
    output = printed(predict.main, plain.run.path, "--unknown")

    assert re.fullmatch(r"the c.t\\na dog . ..", output)


def test_scores_read_line_breaks_in_lines(plain, printed, piped):
    words = [plain.run.path, "--score"]
    expected = [printed(predict.main, *words, text) for text in ("a\nd", r"a\nd")]
    actual = []
    for more in ([], ["--raw"]):
        piped(rb"a\nd")
        actual.append(printed(predict.main, *words, *more))

    assert actual == expected


def test_unknown_characters_are_told(plain, printed, capsys):
    assert predict.main([str(plain.run.path), "the c_t é中"]) == 0

    output, error = capsys.readouterr()
    assert output == "the cat é中\n"
    assert error.startswith("2 unknown")


JSON_ROWS = r"""{"id":1.50,"meta":{"body": "the c_t \u4E2D \ud83d\uDE00\/"}, "t\n":[1, {"a":"}"}]}

 {"meta":{"body":"one\nt_o"} ,"id":  2 }
{"id":3,"meta":{"body":null}}
{"meta":null}""".replace("\n", "\r\n")


def test_rows_of_json_keep_what_is_not_a_blank(plain, printed, piped):
    piped(JSON_ROWS.encode())
    output = printed(predict.main, plain.run.path, "--column", "meta.body")
    filled = [json.loads(line) for line in output.split("\r\n") if line]
    first, second, *_ = (each["meta"]["body"] for each in filled[:2])

    assert first == "the cat 中 😀/"
    assert second.startswith("one\nt")
    assert len(second) == len("one\nt_o")

    changed = output.replace("the cat", "the c_t")
    assert changed.replace(json.dumps(second), r'"one\nt_o"') == JSON_ROWS


@of_all_tokens
@pytest.mark.parametrize("words", [[], ["--score"]])
def test_half_a_character_of_json_is_unknown(trained, printed, piped, words):
    """Such as from a text that was cut in the middle of an emoji."""
    row = r'{"text": "the cat \uD83D'
    piped(f'{row} sat"}}\n{row} s_t"}}'.encode())
    words = [trained.run.path, "--column", "text", *words]
    first, second = printed(predict.main, *words).splitlines()

    assert first.startswith(f'{row} sat"')
    assert second.startswith(f"{row} s")


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
        'a\ttext\n1\tsay "hi" to the c_t 5"\n2\tthe c_t\n',
        '\ufeff{"text":"the c_t"}\n{"text":""}',
    ],
)
def test_tables_of_other_makers(plain, printed, piped, rows):
    piped(rows.encode())
    output = printed(predict.main, plain.run.path, "--column", "text")

    assert output == rows.replace("c_t", "cat")


@pytest.mark.parametrize("name", ["rows", "rows.csv.gz"])
def test_a_table_may_be_a_file(plain, tmp_path, printed, name):
    path = tmp_path / name
    content = CSV_ROWS.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    output = printed(predict.main, plain.run.path, path, "--column", "text")

    assert output == CSV_ROWS.replace("c_t", "cat")


def test_a_damaged_file_is_one_line(plain, tmp_path, refusal):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"text\nthe c_t\n")[:-4])
    words = [plain.run.path, path, "--column", "text"]

    assert "ended" in refusal(predict.main, *words, before="text\nthe cat\n")


def test_a_blank_of_a_table_without_quotes_is_no_line_break(plain, printed, piped):
    """A field with a line break needs quotes."""
    rows = 'a\ttext\n"5\tsat on the mat._a dog ran\n6" x\t"no\n'
    piped(rows.encode())
    output = printed(predict.main, plain.run.path, "--column", "text")

    assert [line.count("\t") for line in output.splitlines()] == [1, 1, 1]

    piped(b"text\nsat on the mat._a dog ran\n")
    output = printed(predict.main, plain.run.path, "--column", "text")

    assert output == 'text\n"sat on the mat.\na dog ran"\n'


@pytest.mark.parametrize(
    ("rows", "before", "message"),
    [
        ("", "", "empty"),
        ("a,b\n1,2\n", "", "'a', 'b'"),
        ('[\n {"text": "a c_t"}]', "", "line 1: it is a JSON list"),
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


ODD = [
    *TEXTS,
    "👩‍👩‍👧",
    "\\n",
    "\\",
    '"',
    "'",
    ",",
    ";",
    "\t",
    "\r",
    "\n",
    "{",
    "[MASK]",
    "&amp;",
]
ODD_TEXTS = st.lists(
    st.sampled_from([*ODD, BLANK]) | st.text(st.characters(codec="utf-8"), max_size=8),
    max_size=6,
).map("".join)
any_texts = given(st.lists(ODD_TEXTS, min_size=1, max_size=5), st.booleans())
few_runs = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Format(NamedTuple):
    """Rows around texts, with blanks in fields that are not filled."""

    header: str
    before: str
    encode: Callable[[str], str]
    after: str
    end: str = "\r\n"
    added: str = ""  # to the header
    scores: str = ""  # a pattern


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


NUMBER = r"-?[\d.]+"
JSON = Format(
    "",
    f'{{"{BLANK}" : [1.0, {{"text": "\\/{BLANK}"}}], "text":',
    json.dumps,
    "\t",
    "}\n",
    scores=f', "score": {NUMBER}, "score_per_character": {NUMBER}',
)
CSV = Format(
    'id,text,"mo\nre"',
    f'"{BLANK},\r\n",',
    quoted,
    f',a "b" {BLANK}',
    added=",score,score_per_character",
    scores=f",{NUMBER},{NUMBER}",
)
TABLES = {
    "JSON": JSON,
    "JSON in UTF-8": JSON._replace(encode=partial(json.dumps, ensure_ascii=False)),
    "CSV": CSV,
    "TSV": Format(
        "\ufefftext\tid",
        "",
        quoted,
        f"\t {BLANK} ",
        added="\tscore\tscore_per_character",
        scores=f"\t{NUMBER}\t{NUMBER}",
    ),
}
LINES_OF_TEXT = Format("", "", lambda text: text.replace("\n", ""), "")
of_tables = pytest.mark.parametrize("form", TABLES.values(), ids=TABLES)
of_formats = pytest.mark.parametrize(
    "form", [*TABLES.values(), LINES_OF_TEXT], ids=[*TABLES, "lines"]
)


def rows_of(form, texts):
    rows = [form.before + form.encode(text) + form.after + form.end for text in texts]
    header = form.header + form.end if form.header else ""
    return header + "".join(rows)


@of_formats
@few_runs
@any_texts
def test_all_but_the_blanks_is_the_same(plain, printed, piped, form, texts, raw):
    if not raw:  # a backslash before a blank is an escape
        texts = [re.sub(r"\\+(?=<\?>)", "", text) for text in texts]
    words = ["--blank", BLANK, *["--raw"] * raw]
    if form != LINES_OF_TEXT:
        words += ["--column", "text"]
    piped(rows_of(form, texts).encode())
    output = printed(predict.main, plain.run.path, *words)

    pattern = re.escape(form.header + form.end if form.header else "")
    for text in texts:
        around = map(re.escape, form.encode(text).split(BLANK))
        filled = r"(?:\\n|[\s\S])".join(around)
        pattern += re.escape(form.before) + filled + re.escape(form.after + form.end)

    assert re.fullmatch(pattern, output)


@of_tables
@few_runs
@any_texts
def test_scores_are_added_to_rows_that_stay(plain, printed, piped, form, texts, raw):
    piped(rows_of(form, texts).encode())
    words = ["--score", "--column", "text", *["--raw"] * raw]
    output = printed(predict.main, plain.run.path, *words)

    header = form.header + form.added + form.end if form.header else ""
    pattern = re.escape(header)
    for text in texts:
        row = form.before + form.encode(text) + form.after
        pattern += re.escape(row) + form.scores + re.escape(form.end)

    assert re.fullmatch(pattern, output)


def probabilities_one_by_one(trained, text):
    """log P(token | all other tokens) of a text of one window, from one pass per token."""
    vocabulary = trained.vocabulary
    ids = vocabulary.encode(text)
    logs = []
    for i in range(len(ids)):
        masked = ids.clone()
        masked[i] = vocabulary.mask_token
        with torch.no_grad():
            logits = trained.model(masked[None], torch.tensor([i]))[0]
        logs.append(logits[: vocabulary.n_ordinary].log_softmax(-1)[ids[i]].item())

    return logs


SENTENCES = ["the cat sat on the mat.", "a _", "", "the tac"]


@of_all_tokens
def test_a_score_is_the_sum_over_all_tokens_masked_once(trained, printed):
    known = [text for text in SENTENCES if trained.vocabulary.lost(text) == (0, 0)]
    output = printed(predict.main, trained.run.path, "--score", *known)
    rows = [list(map(float, line.split("\t"))) for line in output.splitlines()]

    for text, (score, mean) in zip(known, rows, strict=True):
        assert score == pytest.approx(
            sum(probabilities_one_by_one(trained, text)), abs=1e-3
        )
        assert mean == pytest.approx(score / max(len(text), 1), abs=1e-3)


def test_unknown_characters_of_a_text_have_no_score(plain, printed):
    output = printed(predict.main, plain.run.path, "--score", "é中", "the é", "the ")
    (nothing, _), (with_unknown, mean), (without, _) = (
        map(float, line.split("\t")) for line in output.splitlines()
    )

    assert nothing == 0
    assert 0 > with_unknown != without
    assert mean == pytest.approx(with_unknown / 4, abs=1e-4)


def test_a_long_text_has_a_score_from_windows_with_context(plain):
    vocabulary = plain.vocabulary
    sentence = "the cat sat on the mat.\na dog ran\n"
    (score,) = scores_of(plain, [vocabulary.encode(sentence * 20)])
    (of_one,) = scores_of(plain, [vocabulary.encode(sentence)])

    assert score == pytest.approx(20 * of_one, rel=0.3)


def test_tables_have_scores(plain, printed, piped):
    piped(b"text,n\r\nthe cat,1\r\n\r\ntac,2\r\n")
    output = printed(predict.main, plain.run.path, "--score", "--column", "text")
    header, first, empty, second, _ = output.split("\r\n")

    assert header == "text,n,score,score_per_character"
    assert first.startswith("the cat,1,-")
    assert empty == ""
    assert second.startswith("tac,2,-")

    piped(b'{"text":"the cat" }\n{}')
    output = printed(predict.main, plain.run.path, "--score", "--column", "text")
    first, second = output.split("\n")

    assert first.startswith('{"text":"the cat" , "score": -')
    assert json.loads(second) == {"score": 0.0, "score_per_character": 0.0}


def test_a_column_that_would_be_added_twice_is_refused(plain, refusal, piped):
    piped(b"text,score\na,1\n")
    words = [plain.run.path, "--score", "--column", "text"]

    assert "'score'" in refusal(predict.main, *words)


def test_a_long_text_of_blanks_is_decoded_once(plain, monkeypatch):
    """Or `generate.py --length 100000` would decode all beginnings of its text."""
    vocabulary = load_trained(str(plain.run.path)).vocabulary
    template = read_template("_" * 1_000, vocabulary)
    decode = vocabulary.decode
    lengths = []

    def counted(ids):
        lengths.append(len(ids))
        return decode(ids)

    monkeypatch.setattr(type(vocabulary), "decode", lambda self, ids: counted(ids))
    text, _ = template.filled(torch.zeros_like(template.ids))

    assert len(text) == sum(lengths) == 1_000
