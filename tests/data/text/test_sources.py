import bz2
import gzip
import os
import re
from collections import Counter

import pyarrow
import pyarrow.parquet
import pytest

from data import corpus
from data.corpus import CorpusError, load_corpus
from data.play.grammar import play
from data.text import sources
from data.text.sources import Reading, list_sources, read_blocks
from data.tokens.bytes import ByteVocabulary
from tests.conftest import in_files, one_line, parts, written
from tests.data.text.helpers import whole_parts

# two bytes, so blocks end inside characters unless they are cut well
TEXT = play()[:200_000].replace("a", "ä")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, empty_cache):
    monkeypatch.setattr(sources, "BLOCK", 10_000)
    monkeypatch.setattr(corpus, "IN_MEMORY", 0)


def write_gzip(path):
    path.with_suffix(".gz").write_bytes(
        b"".join(gzip.compress(part.encode()) for part in parts(TEXT, 3))
    )
    return path.with_suffix(".gz")


def write_folder(path):
    """Files of every kind, some of them in a subfolder."""
    path.mkdir()
    first, second, third, fourth = parts(TEXT, 4)
    for name in ("1", "2", "3"):
        (path / name).mkdir()
    (path / "1" / "part.txt.gz").write_bytes(gzip.compress(first.encode()))
    rows = [second[i : i + 700] for i in range(0, len(second), 700)]
    table = pyarrow.table({"id": list(range(len(rows) + 2)), "text": [*rows, None, ""]})
    pyarrow.parquet.write_table(table, path / "2" / "rows.parquet", row_group_size=50)
    with pyarrow.CompressedOutputStream(str(path / "3" / "part.zst"), "zstd") as file:
        file.write(third.encode())

    in_files(path / "4", fourth, 50)
    (path / "4" / ".hidden").write_text("not part of the text")
    return path


@pytest.mark.parametrize("write", [write_gzip, write_folder])
def test_all_of_the_text_is_read_from_files_of_any_kind(write, tmp_path):
    loaded = load_corpus(str(write(tmp_path / "texts")))
    training, validation = whole_parts(loaded)

    assert Counter(training + validation) == Counter(TEXT)
    assert Counter(TEXT) == loaded.stored.normal.counts
    assert len(training) == pytest.approx(0.9 * len(TEXT), rel=0.05)


def write_rows(path, rows, **options):
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), path, **options)
    return path


def test_blocks_end_before_a_line_if_they_can_and_never_inside_a_character(tmp_path):
    def blocks_of(text):
        (source,) = list_sources(
            written(tmp_path / "text.txt", text), Reading()
        ).sources
        blocks = ["".join(block.texts) for block in read_blocks(source, Reading())]

        assert "".join(blocks) == text

        return blocks

    assert blocks_of("one line") == ["one line"]

    for text in ("ä€𝄞" * 20_000, "\n" * 50_000):
        assert len(blocks_of(text)) > 3

    for text in (TEXT, "слово и дело\n" * 5_000, ("word " * 1_500 + "\n") * 10):
        *full, _ = blocks_of(text)
        assert len(full) > 2
        assert all(block.endswith("\n") for block in full)


def test_parquet_is_read_in_bounded_memory(tmp_path):
    rows = [f"{i}{TEXT[:1_000]}" for i in range(30_000)] + ["x" * 20_000_000]
    in_one_group = {"row_group_size": len(rows), "use_dictionary": False}
    path = write_rows(tmp_path / "text.parquet", rows, **in_one_group)
    pool = pyarrow.system_memory_pool()
    before = pool.max_memory()
    pyarrow.set_memory_pool(pool)
    n_chars = []
    n_ends = 0
    for block in read_blocks(list_sources(path, Reading()).sources[0], Reading()):
        n_chars.append(sum(map(len, block.texts)))
        n_ends += len(block.texts) - (not block.is_whole)

    assert sum(n_chars) == sum(map(len, rows))
    assert n_ends == len(rows)
    assert max(n_chars) <= 20_000
    assert pool.max_memory() - before < 30_000_000


GZIP = gzip.compress(TEXT.encode())
NUMBERS = pyarrow.table({"text": [1, 2], "words": ["a", "b"]})


UNUSABLE = {
    "empty.txt": (b"", "is empty"),
    "gzip.tgz": (GZIP, "is compressed (gzip)"),
    "bzip2.bz2": (bz2.compress(TEXT.encode()), "is compressed (bzip2)"),
    "program": (b"\x7fELF" + bytes(100), "is a binary file"),
    "latin.txt": (b"x" * 25_000 + b"caf\xe9", "is not UTF-8 text (byte 25003)"),
    "sixteen.txt": ("some text".encode("utf-16"), "is UTF-16 text"),
    "mark.txt": (b"\xef\xbb\xbf", "is empty"),
    "page.html": (b"<p>text</p>", "is HTML or XML"),
    "page.txt": (b'<div class="page">text</div>', "data.raw=true"),
    "broken.json": (b"{'text': 1}", "has no JSON"),
    "pipe.txt": (os.mkfifo, "not a regular file"),
    "rows.parquet": (
        lambda path: pyarrow.parquet.write_table(NUMBERS, path),
        "(it has 'text' (int64), 'words' (string))",
    ),
    "short.gz": (GZIP[:5_000], "ended before the end-of-stream marker"),
    "damaged.GZ": (GZIP[:5_000] + bytes(1_000) + GZIP[6_000:], "cannot be read"),
    "none.gz": (b"no gzip", "cannot be read (Not a gzipped file"),
    "damaged.zst": (b"no Zstandard", "cannot be read"),
    "damaged.parquet": (b"no Parquet", "cannot be read"),
}


def folder_with(path, name, content):
    """A folder of a text and a file that cannot be used."""
    path.mkdir()
    written(path / "good.txt", TEXT)
    if callable(content):
        content(path / name)
    else:
        (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_that_is_no_text_is_refused_and_left_out_of_a_folder(name, tmp_path):
    content, reason = UNUSABLE[name]
    folder = folder_with(tmp_path / "texts", name, content)
    listing = list_sources(folder, Reading())

    assert [source.path.name for source in listing.sources] == ["good.txt"]
    assert reason in listing.left_out[folder / name]

    with one_line(CorpusError, re.escape(reason)) as raised:
        load_corpus(str(folder / name))

    assert name in str(raised.value)


def test_a_folder_without_text_says_how_many_files_it_leaves_out(tmp_path):
    for name in ("a.so", "b.so"):
        (tmp_path / name).write_bytes(bytes(100))
    with one_line(CorpusError, "'a.so' is a binary file .*; 2 files are left out"):
        load_corpus(str(tmp_path))


def test_a_link_to_a_folder_above_it_is_refused(tmp_path):
    folder = folder_with(tmp_path / "texts", "up", lambda path: path.symlink_to(".."))
    with one_line(CorpusError, "leads back to a folder above it"):
        load_corpus(str(folder))


def test_links_to_nothing_are_left_out_of_a_folder(tmp_path):
    for target in ("link", "nowhere"):
        folder = folder_with(
            tmp_path / target, "link", lambda path, to=target: path.symlink_to(to)
        )
        listing = list_sources(folder, Reading())

        assert listing.left_out == {folder / "link": "is a link to nothing"}


def test_a_long_file_that_is_no_text_in_the_end_is_left_out_of_a_folder(tmp_path):
    late = b"x" * 200_000 + b"caf\xe9"
    reason = "is not UTF-8 text (byte 200003)"
    folder = folder_with(tmp_path / "texts", "late.txt", late)
    for _ in range(2):  # the second time from the cache
        stored = load_corpus(str(folder)).stored

        assert stored.left_out == {folder / "late.txt": f"{reason}: convert it first"}
        assert stored.normal.pieces["n_bytes"].sum() == len(TEXT.encode())

    (folder / "good.txt").unlink()
    for path in (folder, folder / "late.txt"):
        with one_line(CorpusError, re.escape(reason)):
            load_corpus(str(path))


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path):
    path = written(tmp_path / "text.txt", TEXT)
    (source,) = list_sources(path, Reading()).sources
    blocks = read_blocks(source, Reading())
    next(blocks)
    written(path, TEXT + "one more line")

    with pytest.raises(CorpusError, match="has changed while it was read"):
        list(blocks)


def test_an_empty_folder_and_a_text_without_validation_tokens_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="has no files"):
        load_corpus(str(tmp_path))

    loaded = load_corpus(str(written(tmp_path / "text.txt", "x")))

    with pytest.raises(CorpusError, match="the text is too short"):
        loaded.stored.tokenized(ByteVocabulary())
