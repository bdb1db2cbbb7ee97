import json
import multiprocessing
import os
import resource
import shutil
import time

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from data import corpus
from data.corpus import CorpusError, load_corpus
from data.play.grammar import play
from data.text import conversion, growing, sources
from data.text.conversion import convert
from data.text.growing import PROGRESS
from data.text.normal_form import normalize
from data.text.sources import Block
from data.text.split import split
from data.tokens.bpe import train
from data.tokens.bytes import ByteVocabulary
from data.tokens.subwords import SubwordVocabulary
from data.vocabulary import MASK, PAD, SEP, Vocabulary
from runs.files import write_json
from tests.conftest import in_files, limited, one_line, parts, written
from tests.data.text.helpers import documents_of

TEXT = play(300_000).replace("a", "ä")
VOCABULARY = Vocabulary(TEXT, [PAD, MASK, SEP])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, empty_cache):
    monkeypatch.setattr(sources, "BLOCK", 2_000)
    monkeypatch.setattr(conversion, "CHUNK", 2_000)
    monkeypatch.setattr(growing, "SECONDS_BETWEEN_NOTES", 0)
    monkeypatch.setattr(corpus, "IN_MEMORY", 0)


@pytest.fixture
def text(tmp_path):
    """Documents of several blocks."""
    return in_files(tmp_path / "texts", TEXT, 40)


def blocks(number):
    """Of one of ten sources with short and long documents."""
    documents = parts(parts(TEXT, 10)[number], 40)
    for document in documents[:20]:
        yield Block([document])
    for document in documents[20:]:
        yield Block([document[:200]], is_whole=False)
        yield Block([document[200:], "x"])


def read(folder, has_documents=True):
    return normalize(blocks, 10, folder, "key", has_documents, lambda n: None)


def converted(folder, normal_folder):
    normal = read(normal_folder)
    parts_of_all = split(normal, np.zeros(10, dtype=np.int64), 1, has_documents=True)
    convert(normal, parts_of_all, Vocabulary(TEXT + "x", [PAD, MASK, SEP]), 99, folder)


def content(folder):
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.startswith(PROGRESS)
    }


@pytest.mark.parametrize("step", ["reading", "conversion"])
def test_what_is_killed_ten_times_gives_the_same_files(tmp_path, step):
    normal = tmp_path / "normal"
    whole = tmp_path / "whole"
    folder = tmp_path / "killed"
    if step == "reading":
        write = read
        arguments = ()
        grows = "text"
    else:
        write = converted
        arguments = (normal,)
        grows = "training.ids"
    write(whole, *arguments)
    size = (whole / grows).stat().st_size
    sizes = []
    for number in range(10):
        process = multiprocessing.get_context("fork").Process(
            target=write, args=(folder, *arguments)
        )
        process.start()
        path = folder / grows
        while process.is_alive() and (
            not path.exists() or path.stat().st_size < (number + 1) * size // 12
        ):
            time.sleep(0.001)
        process.kill()
        process.join()
        sizes.append(path.stat().st_size)

    assert sizes[-1] < size
    assert sizes == sorted(sizes)  # each attempt went on from the one before

    write(folder, *arguments)

    assert content(folder) == content(whole)


def test_reading_goes_on_inside_a_source(tmp_path):
    whole = read(tmp_path / "whole")
    n_read = []

    def interrupted(number):
        for n, block in enumerate(blocks(number)):
            if number == 5 and n == 30:
                raise CorpusError("stop")
            yield block

    def counted(number):
        for block in blocks(number):
            n_read.append(number)
            yield block

    folder = tmp_path / "again"
    with pytest.raises(CorpusError, match="stop"):
        normalize(interrupted, 10, folder, "key", True, lambda n: None)
    again = normalize(counted, 10, folder, "key", True, lambda n: None)

    assert min(n_read) == 5
    assert content(folder) == content(tmp_path / "whole")
    assert again.counts == whole.counts


def test_what_is_not_noted_as_progress_is_written_again(tmp_path, monkeypatch):
    folder = tmp_path / "ids"
    noted = []

    def write_and_keep(path, content):
        noted.append(json.dumps(content))
        write_json(path, content)

    normal = tmp_path / "normal"
    read(normal)
    monkeypatch.setattr(growing, "write_json", write_and_keep)
    converted(folder, normal)
    whole = content(folder)
    for progress in (noted[len(noted) // 2], "damaged"):
        (folder / "done.json").unlink()
        (folder / PROGRESS).write_text(progress)
        converted(folder, normal)
        assert content(folder) == whole


def test_a_full_disk_gives_one_line_and_the_next_call_continues(text):
    loaded = load_corpus(str(text))
    with (
        limited(resource.RLIMIT_FSIZE, 100_000),
        one_line(CorpusError, "cannot prepare the text"),
    ):
        loaded.stored.tokenized(VOCABULARY)

    check_ids(loaded)


def check_ids(loaded):
    """Each document has the ids of its file."""
    training, validation = documents_of(loaded)
    assert sorted(training + validation) == sorted(parts(TEXT, 40))


@pytest.mark.parametrize(
    "name", ["training.ids", "training.ends", "validation.ends", "done.json"]
)
def test_a_damaged_conversion_is_repeated(name, text):
    loaded = load_corpus(str(text))
    check_ids(loaded)
    (path,) = corpus.CACHE.rglob(name)
    path.write_bytes(path.read_bytes()[:10])
    check_ids(loaded)


def test_a_text_is_read_and_converted_once_and_again_if_a_file_changes(
    text, monkeypatch
):
    loaded = load_corpus(str(text))
    check_ids(loaded)
    with monkeypatch.context() as patch:
        patch.setattr("data.text.stored.normalize", None)
        patch.setattr("data.text.stored.convert", None)
        again = load_corpus(str(text))
        check_ids(again)
    os.utime(text / "001.txt")  # a new time, the same content
    with monkeypatch.context() as patch:
        patch.setattr("data.text.stored.convert", None)
        again = load_corpus(str(text))
        assert again.sha256 == loaded.sha256
        check_ids(again)

    changed = "T" + (text / "000.txt").read_text()[1:]  # of the same size
    (text / "000.txt").write_text(changed)
    again = load_corpus(str(text))

    assert again.sha256 != loaded.sha256
    training, validation = documents_of(again)
    assert changed in training + validation
    # what is loaded stays as it was
    assert loaded.stored.piece(0) != again.stored.piece(0)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, ByteVocabulary([PAD, MASK, SEP])])
def test_one_text_has_the_ids_of_the_whole(vocabulary, tmp_path):
    loaded = load_corpus(str(written(tmp_path / "text.txt", TEXT)))
    tokens = loaded.stored.tokenized(vocabulary)
    n = int(len(TEXT) * 0.9)

    assert (loaded.training, loaded.validation) == (TEXT[:n], TEXT[n:])
    for part, ends, expected in (
        (tokens.training, tokens.documents, TEXT[:n]),
        (tokens.validation, tokens.validation_documents, TEXT[n:]),
    ):
        ids = vocabulary.encode(expected)
        assert part.ids.dtype == torch.uint8
        assert torch.equal(part.ids.long(), ids)
        assert part.counts.equal(ids.bincount(minlength=vocabulary.n_ids_in_text))
        assert ends.tolist() == [len(ids)]


def test_documents_are_encoded_one_by_one_and_a_separator_follows_each(tmp_path):
    path = tmp_path / "text.parquet"
    rows = ["ab", "a", "b", "ab ab", *map(str, range(100, 140))]
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), path)
    special = [PAD, MASK, SEP]
    vocabulary = SubwordVocabulary(train("ab " * 100, 260), special)

    tokens = load_corpus(str(path)).stored.tokenized(vocabulary)

    texts = []
    for ids, ends in (
        (tokens.training.ids, tokens.documents),
        (tokens.validation.ids, tokens.validation_documents),
    ):
        assert (ids[ends - 1] == vocabulary.id_of(SEP)).all()
        texts += vocabulary.decode(ids.long()).split(SEP)[:-1]
    assert sorted(texts) == sorted(rows)


def test_another_process_opens_the_same_text(text):
    loaded = load_corpus(str(text))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(documents_of, (loaded,)) == documents_of(loaded)


def test_a_text_that_was_removed_from_the_cache_is_read_again(text):
    loaded = load_corpus(str(text))
    shutil.rmtree(loaded.stored.cache / "normal")
    check_ids(load_corpus(str(text)))
