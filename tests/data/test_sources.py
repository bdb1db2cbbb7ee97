import gzip
import os
import tarfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch

import data.stored
from data import corpus, sources
from data.byte_tokens import ByteVocabulary
from data.corpus import CorpusError, load_corpus
from data.play.grammar import play
from data.sources import list_sources, read_blocks
from data.vocabularies import vocabulary_of
from data.vocabulary import Vocabulary

TEXT = play()[:200_000].replace("a", "ä")  # two bytes, so blocks end inside characters unless they are cut well


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "BLOCK", 10_000)
    monkeypatch.setattr(corpus, "IN_MEMORY", 0)
    monkeypatch.setattr(corpus, "CACHE", tmp_path / "cache")


def parts(n: int) -> list[str]:
    """The text in `n` parts that end anywhere."""
    return [TEXT[i * len(TEXT) // n : (i + 1) * len(TEXT) // n] for i in range(n)]


def write_one(path: Path) -> Path:
    path.mkdir()
    (path / "text.txt").write_text(TEXT)
    return path / "text.txt"


def write_hundred(path: Path) -> Path:
    for number, part in enumerate(parts(100)):
        folder = path / f"{number // 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number % 10}.txt").write_text(part)
    (path / ".hidden").write_text("not part of the text")
    return path


def write_gzip(path: Path) -> Path:
    path.mkdir()
    (path / "text.txt.gz").write_bytes(b"".join(gzip.compress(part.encode()) for part in parts(3)))
    return path / "text.txt.gz"


def write_zstandard(path: Path) -> Path:
    path.mkdir()
    with pyarrow.CompressedOutputStream(str(path / "text.zst"), "zstd") as file:
        file.write(TEXT.encode())
    return path


def write_parquet(path: Path) -> Path:
    path.mkdir()
    for number, part in enumerate(parts(2)):
        rows = [part[i : i + 700] for i in range(0, len(part), 700)]
        table = pyarrow.table({"id": list(range(len(rows) + 2)), "text": [*rows, None, ""]})
        pyarrow.parquet.write_table(table, path / f"{number}.parquet", row_group_size=50)
    return path


def write_mixed(path: Path) -> Path:
    path.mkdir()
    first, second, third = parts(3)
    (path / "1.txt").write_text(first)
    (path / "2.txt.gz").write_bytes(gzip.compress(second.encode()))
    pyarrow.parquet.write_table(pyarrow.table({"text": [third]}), path / "3.parquet")
    return path


@pytest.mark.parametrize("write", [write_one, write_hundred, write_gzip, write_zstandard, write_parquet, write_mixed])
def test_the_same_text_in_any_files_gives_the_same_tokens(write: Callable[[Path], Path], tmp_path: Path):
    loaded = load_corpus(str(write(tmp_path / "texts")))
    assert loaded.stored is not None
    assert loaded.training + loaded.validation == TEXT
    assert loaded.counts == Counter(TEXT)
    split = int(len(TEXT) * 0.9)
    for vocabulary in (Vocabulary(loaded.counts), ByteVocabulary()):
        tokens = loaded.stored.tokenized(vocabulary)
        expected = vocabulary.encode(TEXT[:split])
        assert tokens.training.ids.tolist() == expected.tolist()
        assert tokens.validation.ids.tolist() == vocabulary.encode(TEXT[split:]).tolist()
        assert tokens.training.ids.element_size() == 1
        assert tokens.training.counts.tolist() == expected.bincount(minlength=vocabulary.n_ordinary).tolist()


def test_one_file_and_a_hundred_cut_between_lines_have_the_same_subwords(tmp_path: Path):
    """A border inside a word would cut it in two: files are documents."""
    lines = TEXT.splitlines(keepends=True)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "text.txt").write_text(TEXT)
    (tmp_path / "hundred").mkdir()
    begins = [i for i, line in enumerate(lines) if not line.isspace()]
    begins = [begins[i * len(begins) // 100] for i in range(100)]
    for number, (begin, end) in enumerate(pairwise([*begins, len(lines)])):
        (tmp_path / "hundred" / f"{number:03}.txt").write_text("".join(lines[begin:end]))
    one, hundred = (load_corpus(str(tmp_path / name)) for name in ("one", "hundred"))
    vocabulary = vocabulary_of("bpe:400", one, (), lambda line: None)
    assert one.stored is not None
    assert hundred.stored is not None
    assert len(hundred.stored.files) == 100
    tokens, others = one.stored.tokenized(vocabulary), hundred.stored.tokenized(vocabulary)
    assert tokens.training.ids.tolist() == others.training.ids.tolist()
    assert tokens.validation.ids.tolist() == others.validation.ids.tolist()
    assert tokens.training.ids.dtype == torch.uint16
    split = int(len(TEXT) * 0.9)
    assert tokens.training.ids.tolist() == vocabulary.encode(TEXT[:split]).tolist()


def test_documents_are_files_and_rows_of_parquet(tmp_path: Path):
    path = tmp_path / "texts"
    path.mkdir()
    (path / "1.txt").write_text("one ö")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["zwei", "drei ", "vier"]}), path / "2.parquet")
    (path / "3.txt").write_text("five" * 10)
    loaded = load_corpus(str(path))
    assert loaded.stored is not None
    tokens = loaded.stored.tokenized(Vocabulary(loaded.counts))
    split = int((5 + 4 + 5 + 4 + 40) * 0.9)
    assert tokens.documents.tolist() == [5, 9, 14, 18, split]


def test_blocks_end_before_a_line_if_they_can_and_never_inside_a_character(tmp_path: Path):
    path = tmp_path / "text.txt"
    for text in (TEXT, "ä€𝄞" * 20_000, "\n" * 50_000, "слово и дело\n" * 5_000):
        path.write_text(text)
        blocks = [block.text for block in read_blocks(list_sources(path)[0])]
        assert "".join(blocks) == text
        assert len(blocks) > 3
    for text in (TEXT, "слово и дело\n" * 5_000, ("word " * 1_500 + "\n") * 10):
        path.write_text(text)
        *full, _ = (block.text for block in read_blocks(list_sources(path)[0]))
        assert all(block.endswith("\n") for block in full)


def test_a_small_file_is_one_block(tmp_path: Path):
    path = tmp_path / "text.txt"
    path.write_text("one line")
    assert [tuple(block) for block in read_blocks(list_sources(path)[0])] == [("one line", [8])]


def test_parquet_is_read_in_bounded_memory(tmp_path: Path):
    path = tmp_path / "text.parquet"
    rows = [TEXT[:1_000]] * 30_000 + ["x" * 20_000_000]  # in one row group
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), path, row_group_size=len(rows), use_dictionary=False)
    pool = pyarrow.system_memory_pool()
    before = pool.max_memory()
    pyarrow.set_memory_pool(pool)
    blocks = [(len(block.text), len(block.ends)) for block in read_blocks(list_sources(path)[0])]
    assert sum(n_chars for n_chars, _ in blocks) == sum(map(len, rows))
    assert sum(n_ends for _, n_ends in blocks) == len(rows)
    assert max(n_chars for n_chars, _ in blocks) <= 20_000
    assert pool.max_memory() - before < 30_000_000


def make(folder: Path, fault: str) -> Path:
    """A folder of texts with a fault in one file. Returns that file."""
    folder.mkdir()
    (folder / "good.txt").write_text(TEXT)
    path = folder / "z bad.txt"
    match fault:
        case "empty":
            path.touch()
        case "binary":
            path.write_bytes(b"\x7fELF" + bytes(100))
        case "not UTF-8":
            path.write_bytes(b"x" * 25_000 + "café".encode("latin-1"))
        case "loop of links":
            path.symlink_to(path)
        case "link to the folder":
            path.symlink_to(folder)
        case "pipe":
            os.mkfifo(path)
        case "missing link":
            path.symlink_to(folder / "nowhere")
        case "cut gzip":
            path = folder / "z bad.gz"
            path.write_bytes(gzip.compress(TEXT.encode())[:-1_000])
        case "damaged gzip":
            path = folder / "z bad.GZ"
            content = bytearray(gzip.compress(TEXT.encode()))
            content[5_000:6_000] = b"\xff" * 1_000
            path.write_bytes(content)
        case "damaged Zstandard":
            path = folder / "z bad.zst"
            path.write_bytes(b"no Zstandard")
        case "damaged Parquet":
            path = folder / "z bad.parquet"
            path.write_bytes(b"no Parquet")
        case "xz" | "tgz" | "bz2":
            path = folder / f"z bad.{fault}"
            with tarfile.open(path, {"xz": "w:xz", "tgz": "w:gz", "bz2": "w:bz2"}[fault]) as archive:
                archive.add(folder / "good.txt")
        case "Parquet without the column":
            path = folder / "z bad.parquet"
            pyarrow.parquet.write_table(pyarrow.table({"text": [1, 2], "words": ["a", "b"]}), path)
    return path


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("empty", "is empty: remove it"),
        ("binary", "is a binary file"),
        ("not UTF-8", "is not UTF-8 text (byte 25003)"),
        ("loop of links", "Too many levels of symbolic links"),
        ("link to the folder", "leads back to a folder above it"),
        ("pipe", "is not a regular file"),
        ("missing link", "No such file"),
        ("cut gzip", "ended before the end-of-stream marker"),
        ("damaged gzip", "cannot read"),
        ("damaged Zstandard", "cannot read"),
        ("damaged Parquet", "cannot read"),
        ("xz", "is compressed (xz): unpack it first, or use plain text in .gz or .zst"),
        ("tgz", "is compressed (gzip)"),
        ("bz2", "is compressed (bzip2)"),
        ("Parquet without the column", "has no column 'text' of strings (it has 'text' (int64), 'words' (string))"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(fault: str, message: str, tmp_path: Path):
    path = make(tmp_path / "texts", fault)
    with pytest.raises(CorpusError) as raised:
        load_corpus(str(tmp_path / "texts"))
    assert message in str(raised.value)
    assert str(path) in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    (source,) = list_sources(path)
    blocks = read_blocks(source)
    next(blocks)
    with open(path, "a") as file:
        file.write("one more line\n")
    with pytest.raises(CorpusError, match="has changed while it was read"):
        list(blocks)


def test_a_text_without_validation_tokens_is_refused(tmp_path: Path):
    (tmp_path / "text.txt").write_text("x")
    loaded = load_corpus(str(tmp_path / "text.txt"))
    assert loaded.stored is not None
    with pytest.raises(CorpusError, match="the text is too short"):
        loaded.stored.tokenized(ByteVocabulary())


def test_an_empty_folder_is_refused(tmp_path: Path):
    with pytest.raises(CorpusError, match="has no files"):
        load_corpus(str(tmp_path))


def test_the_sample_is_the_beginning_of_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data.stored, "SAMPLE", 12_345)
    loaded = load_corpus(str(write_hundred(tmp_path / "texts")))
    split = int(len(TEXT) * 0.9)
    assert loaded.is_sample
    assert (loaded.training, loaded.validation) == (TEXT[:12_345], TEXT[split:][:12_345])
