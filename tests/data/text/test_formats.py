"""Every format gives exactly the documents that were written to it."""

import csv
import gzip
import io
import json
import random

import pyarrow
import pyarrow.parquet
import pytest

from data.corpus import load_corpus
from data.tasks.table import from_table
from data.text import sources
from data.text.files import CorpusError
from data.text.hub import folder_of_data_set
from data.text.sources import Reading, list_sources, read_blocks
from experiment import main
from tests.conftest import one_line

MARK = b"\xef\xbb\xbf"


def _documents(n):
    """Documents with all that formats use as syntax."""
    generator = random.Random(0)
    characters = "ab \n\r\t\"',;|é中😀\\{}[]<>&"
    documents = []
    for _ in range(n):
        length = generator.randint(1, 100)
        documents.append("x" + "".join(generator.choices(characters, k=length)))
    return documents


DOCUMENTS = _documents(2_000)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, empty_cache):
    monkeypatch.setattr(sources, "BLOCK", 10_000)


def documents_of(path, reading=None):
    """The documents of all files, put together again."""
    reading = reading or Reading()
    documents = []
    begun = ""
    for source in list_sources(path, reading).sources:
        for block in read_blocks(source, reading):
            for text in block.texts:
                documents.append(begun + text)
                begun = ""
            if not block.is_whole:
                begun = documents.pop()

    assert not begun

    return documents


def json_lines(documents, ensure_ascii=False):
    lines = []
    for number, document in enumerate(documents):
        row = {"id": number, "text": document, "meta": {"body": document}}
        lines.append(json.dumps(row, ensure_ascii=ensure_ascii) + "\n")
    return "".join(lines)


def json_list(documents, indent=None):
    return json.dumps([{"id": 1, "text": each} for each in documents], indent=indent)


def separated(documents, delimiter=","):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerow(["id", "text", "label"])
    writer.writerows([i, document, ""] for i, document in enumerate(documents))
    return file.getvalue()


TABLES = {
    "jsonl": json_lines(DOCUMENTS),
    "json": json_list(DOCUMENTS),
    "csv": separated(DOCUMENTS),
    "tsv": separated(DOCUMENTS, "\t"),
}


def write(path, content, suffix=""):
    """A file that is compressed if its suffix says so."""
    path = path.with_name(path.name + suffix)
    content = content.encode()
    if suffix == ".gz":
        content = gzip.compress(content)
    if suffix == ".zst":
        content = pyarrow.compress(content, "zstd", asbytes=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", TABLES)
def test_the_documents_of_a_table_are_exactly_the_texts_put_in(kind, suffix, tmp_path):
    path = write(tmp_path / f"table.{kind}", TABLES[kind], suffix)

    assert documents_of(path) == DOCUMENTS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.json", json_lines(DOCUMENTS)),
        ("escaped.jsonl", json_lines(DOCUMENTS, ensure_ascii=True)),
        ("indented.json", json_list(DOCUMENTS, indent=2)),
        ("strings.json", json.dumps(DOCUMENTS)),
        ("strings.jsonl", "\n".join(map(json.dumps, DOCUMENTS))),
        ("semicolons.csv", separated(DOCUMENTS, ";")),
        ("lines.txt", json_lines(DOCUMENTS)),
        ("list", json_list(DOCUMENTS)),
        ("table.txt", separated(DOCUMENTS)),
        ("table.dat", separated(DOCUMENTS, "\t")),
    ],
)
def test_a_table_is_known_by_its_name_or_its_first_bytes(name, content, tmp_path):
    assert documents_of(write(tmp_path / name, content)) == DOCUMENTS


def in_arrow_stream(path, table):
    with pyarrow.ipc.new_stream(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=300)


def in_arrow_file(path, table):
    with pyarrow.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=300)


def in_parquet(path, table):
    pyarrow.parquet.write_table(table, path, row_group_size=700)


WRITERS = {
    "stream.arrow": in_arrow_stream,
    "file.arrow": in_arrow_file,
    "table.parquet": in_parquet,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    ],
    ids=["string", "large", "dictionary"],
)
def test_the_rows_of_parquet_and_arrow_files_are_documents(name, kind, tmp_path):
    table = pyarrow.table({"text": pyarrow.array(DOCUMENTS).cast(kind)})
    WRITERS[name](tmp_path / name, table)

    assert documents_of(tmp_path / name) == DOCUMENTS


def test_a_dotted_column_is_a_nested_field_and_rows_without_text_are_left_out(tmp_path):
    bodies = ["one", None, "", " \n", "two"]
    rows = [{"meta": {"body": body}, "flat.name": body} for body in bodies]
    rows.append({"meta": None})
    folder = tmp_path / "tables"
    folder.mkdir()
    write(folder / "rows.jsonl", "\n\n".join(map(json.dumps, rows)))
    write(folder / "rows.csv", "meta.body,n\none,1\n,2\n\n two,3\n".replace(" ", ""))
    table = pyarrow.Table.from_pylist(rows)
    for name, write_table in WRITERS.items():
        write_table(folder / name, table)

    for path in folder.iterdir():
        assert documents_of(path, Reading("meta.body")) == ["one", "two"]
        if path.suffix != ".csv":
            assert documents_of(path, Reading("flat.name")) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("table.jsonl", '{"id": 1, "body": "a", "meta": {"title": "b"}}\n'),
        ("table.txt", '{"id": 1, "body": "a", "meta": {"title": "b"}}\n'),
        ("table.csv", "id,body,meta.title\n1,a,b\n"),
        ("table.txt", "id,body,meta.title\n1,a,b\n"),
    ],
)
@pytest.mark.parametrize("column", ["", "title"])
def test_a_wrong_column_is_refused_with_the_names_of_the_fields(
    name, content, column, tmp_path, refusal
):
    path = write(tmp_path / name, content)
    line = refusal(main, f"data.corpus={path}", f"data.column={column}")

    for field in ("id", "body", "meta.title"):
        assert repr(field) in line


@pytest.mark.parametrize("name", ["chats.jsonl", "chats.parquet"])
@pytest.mark.parametrize("column", ["messages", "messages.content"])
def test_a_field_inside_a_list_is_refused_in_one_line(name, column, tmp_path):
    rows = [{"id": 1, "messages": [{"role": "user", "content": "a"}]}]
    path = write(tmp_path / name, "\n".join(map(json.dumps, rows)))
    if name.endswith("parquet"):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with one_line(CorpusError, "has lists in its field 'messages', which are not read"):
        documents_of(path, Reading(column))


def test_a_csv_file_without_a_line_of_names_says_what_to_do(tmp_path):
    path = write(tmp_path / "lines.csv", "1,a first text\n2,a second one\n")
    with one_line(CorpusError, "add a line of names .* data.documents=lines"):
        documents_of(path)

    texts = documents_of(path, Reading(raw=True, documents="lines"))
    assert texts == ["1,a first text", "2,a second one"]


def test_a_column_that_is_not_text_in_a_later_row_is_refused(tmp_path):
    path = write(tmp_path / "rows.jsonl", json_lines(DOCUMENTS) + '{"text": 5}\n')
    with one_line(CorpusError, "not text, but int"):
        documents_of(path)


@pytest.mark.parametrize(
    "content", ["<?xml version='1.0'?><a/>", "\n<!DOCTYPE html>\n<p>", '<a b="c">d</a>']
)
def test_markup_is_refused_unless_it_is_to_be_read_as_it_is(content, tmp_path):
    for name in ("page.txt", "page", "page.html", "page.xml.gz"):
        path = write(tmp_path / name, content, ".gz" if "gz" in name else "")
        with one_line(CorpusError, "data.raw=true"):
            load_corpus(str(path))

        assert documents_of(path, Reading(raw=True)) == [content]


@pytest.mark.parametrize("kind", TABLES)
def test_raw_reads_a_table_as_it_is(kind, tmp_path):
    path = write(tmp_path / f"table.{kind}", TABLES[kind])

    assert documents_of(path, Reading(raw=True)) == [TABLES[kind]]


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world\nand so on, and so on\n",
        "[Enter HAMLET]\n[He reads]\n",
        "{x} is a set\n",
        "<alice> hi\n<bob> hello\n",
        "2024-01-01\tINFO\tstart\n2024-01-02\tINFO\tstop\n",
        "if a < b and c > d:\n",
    ],
)
def test_plain_text_with_some_syntax_is_plain_text(text, tmp_path):
    assert documents_of(write(tmp_path / "text.txt", text)) == [text]


def test_a_byte_order_mark_is_dropped_in_every_file(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_bytes(MARK + b"text")

    assert documents_of(folder) == ["text"] * 3

    for kind, content in TABLES.items():
        path = tmp_path / f"table.{kind}"
        path.write_bytes(MARK + content.encode())

        assert documents_of(path) == DOCUMENTS

    (tmp_path / "one.txt").write_bytes(MARK + b"some text")
    loaded = load_corpus(str(tmp_path / "one.txt"))

    assert loaded.training + loaded.validation == "some text"


def test_lines_and_paragraphs_are_documents(tmp_path):
    text = "one\n  two\n\n\n  three\r\n\r\nfour é\n"
    lines = ["one", "  two", "  three", "four é"]
    paragraphs = ["one\n  two", "  three", "four é"]
    plain = write(tmp_path / "text.txt", text)
    table = write(tmp_path / "rows.jsonl", json_lines([text, "five"]))

    assert documents_of(plain, Reading(documents="lines")) == lines
    assert documents_of(table, Reading(documents="lines")) == [*lines, "five"]
    assert documents_of(plain, Reading(documents="paragraphs")) == paragraphs
    assert documents_of(table, Reading(documents="paragraphs")) == [*paragraphs, "five"]
    assert documents_of(table, Reading(documents="files")) == [f"{text}\nfive\n"]
    assert documents_of(table, Reading(documents="rows")) == [text, "five"]

    with one_line(CorpusError, "has no rows"):
        documents_of(plain, Reading(documents="rows"))


@pytest.mark.parametrize("documents", ["lines", "paragraphs"])
def test_lines_and_paragraphs_of_many_blocks_are_whole(documents, tmp_path):
    texts = [f"{i} {'wörd' * (i % 50)}" for i in range(3_000)] + ["long " * 10_000]
    end = {"lines": "\r\n", "paragraphs": "\r\n \r\n"}[documents]
    path = write(tmp_path / "text.txt", end.join(texts))

    assert documents_of(path, Reading(documents=documents)) == texts


def test_texts_beside_or_above_tables_are_left_out(tmp_path):
    folder = tmp_path / "mixed"
    for name in ("data/rows", "notes", "more"):
        (folder / name).mkdir(parents=True)
    write(folder / "data" / "rows" / "1.jsonl", json_lines(["a row"]))
    write(folder / "more" / "2.csv", "text\nanother row\n")
    write(folder / "more" / "names.csv", "name,number\na,1\n")
    write(folder / "notes" / "note.txt", "a note")
    write(folder / "README.md", "about the data")
    write(folder / "data" / "LICENSE", "free")
    write(folder / "data" / "info.json", '{"version": {"major": 1}}')
    listing = list_sources(folder, Reading())

    assert documents_of(folder) == ["a row", "another row", "a note"]
    assert {path.name for path in listing.left_out} == {
        "README.md",
        "LICENSE",
        "info.json",
        "names.csv",
    }


def test_a_folder_of_tables_without_the_field_is_refused_in_spite_of_its_readme(
    tmp_path,
):
    folder = tmp_path / "tables"
    folder.mkdir()
    write(folder / "1.csv", "body,number\n" + "some text,1\n" * 10)
    write(folder / "README.md", "about the data")
    with one_line(CorpusError, "it has 'body'"):
        list_sources(folder, Reading())

    assert documents_of(folder, Reading("body")) == ["some text"] * 10

    write(folder / "README.md", "a long text\n" * 100)

    assert [path.name for path in list_sources(folder, Reading()).left_out] == ["1.csv"]

    with one_line(CorpusError, "has no field 'title'"):
        list_sources(folder, Reading("title"))


def test_a_folder_that_datasets_has_saved_is_read_as_its_state_says(tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    files = [{"filename": f"data-0000{i}-of-00002.arrow"} for i in range(2)]
    for i, file in enumerate(files):
        half = pyarrow.table({"text": DOCUMENTS[i * 1_000 : (i + 1) * 1_000]})
        in_arrow_stream(folder / file["filename"], half)
    copy = pyarrow.table({"text": ["a result of map()"]})
    in_arrow_stream(folder / "cache-0123456789abcdef.arrow", copy)
    write(folder / "state.json", json.dumps({"_data_files": files}))
    write(folder / "dataset_info.json", '{"features": {"text": {}}}')
    write(folder / "README.md", "about the data")

    assert documents_of(folder) == DOCUMENTS
    assert not list_sources(folder, Reading()).left_out


def test_a_data_set_of_the_hub_is_read_through_datasets(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "train.jsonl", json_lines(DOCUMENTS))
    write(folder / "test.jsonl", json_lines(["a test"]))
    cache = tmp_path / "cache"

    assert documents_of(folder_of_data_set(f"hf:{folder}", cache, print)) == DOCUMENTS

    test = folder_of_data_set(f"hf:{folder}::test", cache, print)

    assert documents_of(test) == ["a test"]

    with one_line(CorpusError, "Unknown split"):
        folder_of_data_set(f"hf:{folder}::other", cache, print)


def test_a_name_on_the_hub_without_datasets_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with one_line(CorpusError, "pip install datasets"):
        load_corpus("hf:someone/something")


def test_long_fields_of_csv_are_read(tmp_path):
    long = 'a long, "quoted" field\n' * 20_000
    path = write(tmp_path / "long.csv", separated([long, "short"]))

    assert documents_of(path) == [long, "short"]

    rows = [f"{'ab'[i % 2]}{i} {long}" for i in range(16)]
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["text", "label"])
    writer.writerows([row, row[0]] for row in rows)
    task = from_table(write(tmp_path / "task.csv", file.getvalue()))

    assert {example.texts[0] for example in task.pool + task.test} == set(rows)


def test_tabs_may_separate_fields_without_quotes(tmp_path):
    texts = ['"Well," she said', 'a 3" pipe', '"quoted"', 'end "']
    content = "".join(f"{i}\t{text}\n" for i, text in enumerate(texts))
    path = write(tmp_path / "table.tsv", f"id\ttext\n{content}")

    assert documents_of(path) == texts


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", json_lines(DOCUMENTS) + "{'text': 1}\n", "JSON in line 2001"),
        ("rows.json", json_list(DOCUMENTS)[:-100], "has no JSON at"),
        ("rows.csv", separated(DOCUMENTS) + "1,2\n", "has 2 fields in line"),
        ("rows.csv", separated(DOCUMENTS) + '1,"a"b,2\n', "has no CSV in line"),
        ("rows.json", '[["a", "b"]]', "neither objects nor text"),
    ],
)
def test_a_damaged_table_is_named_with_its_place(name, content, message, tmp_path):
    with one_line(CorpusError, message) as raised:
        documents_of(write(tmp_path / name, content))

    assert name in str(raised.value)


def test_lone_surrogates_of_json_are_replaced(tmp_path):
    path = write(tmp_path / "rows.jsonl", r'{"text": "a\ud83d b \ud83d\ude00"}')

    assert documents_of(path) == ["a\ufffd b 😀"]
