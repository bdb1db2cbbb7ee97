"""Documents: the split, copies, the sample, and weights."""

import gzip
import random
import re
import shutil
from itertools import product

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import data.text.stored
from configs.keys import ConfigError
from data import corpus
from data.corpus import CorpusError, load_corpus
from data.play.grammar import play
from data.text.split import border
from tests.conftest import configs_for, one_line, written
from tests.data.text.helpers import documents_of, vocabulary_of, whole_parts

SIZES = {"books": (40, 400), "code": (60, 100)}  # files and their characters


@pytest.fixture(autouse=True)
def cached(empty_cache):
    pass


@pytest.fixture
def folder(tmp_path):
    """Books and code: each file has letters of its folder, and ends with its number."""
    for name, (n, size) in SIZES.items():
        files = tmp_path / "texts" / name
        files.mkdir(parents=True)
        for i in range(n):
            text = (f"{name[0]}ä " * size)[: size - 4]
            (files / f"{i:03}").write_text(f"{text}{i:03}\n")

    return tmp_path / "texts"


def write_rows(path, rows):
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), path)
    return path


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1_005], (0, 904)),  # nine tenths of a single document
        ([10] * 15, (13, 0)),  # a border between documents is close to a tenth
        ([10] * 5, (4, 0)),
        ([100, 10], (1, 0)),
        ([10] * 4, (3, 6)),  # none is
        ([1, 1, 900, 1], (2, 810)),
        ([], (0, 0)),
    ],
)
def test_the_last_documents_are_for_validation_and_one_is_cut_if_none_fits(
    sizes, expected
):
    assert border(np.array(sizes, dtype=np.int64)) == expected


def test_documents_stay_whole_and_each_folder_gives_its_share(folder):
    training, validation = documents_of(load_corpus(str(folder)))
    whole = [path.read_text() for path in sorted(folder.rglob("*/*"))]

    assert sorted(training + validation) == sorted(whole)
    # in the order of the text
    assert training == [text for text in whole if text in training]

    for letter, n in {"b": 4, "c": 6}.items():
        of_folder = [text for text in validation if text.startswith(letter)]
        assert len(of_folder) == n
        assert of_folder != [text for text in whole if text.startswith(letter)][-n:]


def test_the_ends_of_folders_are_numbers_of_training_documents(folder):
    loaded = load_corpus(str(folder))
    tokens = loaded.stored.tokenized(vocabulary_of(loaded))

    assert loaded.stored.folders == ["books", "code"]
    assert tokens.folders.tolist() == [36, 90] == [36, len(tokens.documents)]


def test_a_document_that_is_most_of_its_folder_is_cut(tmp_path):
    text = "".join(random.Random(1).choices("abc ö\n", k=5_000))
    path = write_rows(tmp_path / "text.parquet", ["short", text, "brief"])
    loaded = load_corpus(str(path))
    training, validation = documents_of(loaded)

    assert loaded.stored.split.cut == [0]
    assert sum(map(len, validation)) == pytest.approx(501, abs=12)
    assert text in [one + other for one, other in product(training, validation)]


def test_no_document_of_any_length_is_in_both_parts_or_twice_in_one(tmp_path):
    generator = random.Random(1)
    path = tmp_path / "texts"
    path.mkdir()
    lengths = [1, 2, 5, 20, 120, 200, 300, 5_000]
    unique = []
    for length in lengths * 30:
        unique.append("".join(generator.choices("abcd é", k=length)))
    for number in range(4):  # of four files
        rows = generator.sample(unique, k=len(unique) // 2)
        write_rows(path / f"{number}.parquet", rows + rows[:20])
    (path / "lines.txt").write_text(unique[-1])

    loaded = load_corpus(str(path))
    training, validation = documents_of(loaded)

    kept = training + validation
    assert len(kept) == len(set(kept))
    assert set(kept) <= set(unique)
    assert len(kept) > 150


def test_copies_of_files_and_long_documents_are_left_out_and_counted(
    folder, monkeypatch
):
    monkeypatch.setattr("data.text.sources.BLOCK", 50)
    whole = documents_of(load_corpus(str(folder)))
    for name in ("books/999", "code/998", "code/999"):
        shutil.copy(folder / "code" / "007", folder / name)

    loaded = load_corpus(str(folder))
    training, validation = documents_of(loaded)

    assert loaded.stored.split.n_copies == 3
    assert sorted(training + validation) == sorted(whole[0] + whole[1])


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_validation_by_path_leaves_the_whole_corpus_for_training_without_its_copies(
    folder, tmp_path, kind
):
    valid = folder / "books" / "007"
    expected = [valid.read_text()]
    if kind == "folder":
        valid = tmp_path / "valid"
        valid.mkdir()
        expected = ["new text", (folder / "code" / "009").read_text()]
        for number, text in enumerate([*expected, expected[0]]):
            (valid / f"{number}").write_text(text)

    training, validation = documents_of(load_corpus(str(folder), validation=str(valid)))
    whole = [path.read_text() for path in sorted(folder.rglob("*/*"))]

    assert validation == expected
    assert training == [text for text in whole if text not in expected]


def test_one_text_with_a_validation_text_of_its_own_has_no_separators(tmp_path):
    text = written(tmp_path / "text.txt", "all of it " * 50)
    valid = written(tmp_path / "valid.txt", "another one")
    loaded = load_corpus(str(text), validation=str(valid))

    assert (loaded.training, loaded.validation) == ("all of it " * 50, "another one")
    assert not loaded.has_documents

    tokens = loaded.stored.tokenized(vocabulary_of(loaded))
    assert len(tokens.training) == 500

    other = written(tmp_path / "other.txt", "a third one")
    assert load_corpus(str(text), validation=str(other)).sha256 != loaded.sha256


def test_a_validation_text_that_is_missing_is_named(folder):
    with one_line(CorpusError, "data.validation.*nowhere"):
        load_corpus(str(folder), validation="nowhere")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_sample_of_one_text_is_spread_over_the_whole_of_each_part(
    tmp_path, monkeypatch, suffix
):
    monkeypatch.setattr(data.text.stored, "SAMPLE", 1_000)
    monkeypatch.setattr(data.text.stored, "PIECE", 100)
    monkeypatch.setattr("data.text.sources.BLOCK", 3_000)
    monkeypatch.setattr(corpus, "IN_MEMORY", 0)
    content = play()[:50_000].replace("a", "ä")
    encoded = content.encode()
    if suffix:
        encoded = gzip.compress(encoded)
    path = tmp_path / f"text{suffix}"
    path.write_bytes(encoded)

    loaded = load_corpus(str(path))

    wholes = (content[:45_000], content[45_000:])
    assert whole_parts(loaded) == wholes
    for whole, sample in zip(wholes, (loaded.training, loaded.validation), strict=True):
        assert sample == "".join(whole[i * len(whole) // 10 :][:100] for i in range(10))


def test_the_sample_of_documents_has_each_in_lines_of_its_own(folder, monkeypatch):
    loaded = load_corpus(str(folder))
    training, validation = documents_of(loaded)

    assert loaded.training == "\n".join(training)
    assert loaded.validation == "\n".join(validation)

    monkeypatch.setattr(data.text.stored, "SAMPLE", 1_000)
    monkeypatch.setattr(data.text.stored, "PIECE", 250)
    loaded.stored.cache.rename(loaded.stored.cache.with_name("other"))
    sample = load_corpus(str(folder)).training
    assert len(sample.replace("\n", "")) <= 1_000
    assert "bä" in sample
    assert "cä" in sample


def windows_of(folder, seq_len, weights, windows):
    data_keys = {"data__weights": weights, "data__windows": windows}
    stages = [{"until": 1.0, "seq_len": seq_len}]
    steps = {"training__stages": stages, "training__chars_per_step": seq_len}
    return configs_for(folder, **steps, **data_keys).data


@pytest.mark.parametrize("kind", ["packed", "anywhere"])
def test_weights_are_the_shares_of_the_windows(folder, kind):
    data = windows_of(folder, 32, [{"books": 1}, {"code": 3}], kind)
    windows, _, numbers, *_ = data.training_windows.draw(4_000, 32)
    texts = [data.vocabulary.decode(window) for window in windows]
    if kind == "packed":  # several pieces are in a window
        texts = []
        for window, of_window in zip(windows, numbers, strict=True):
            for number in range(1, int(of_window.max()) + 1):
                piece = window[of_window == number]
                texts.append(data.vocabulary.decode(piece))
    of_code = [text for text in texts if "cä" in text]

    # no window crosses the border of folders
    assert not any("bä" in text for text in of_code)
    # 4.4 standard deviations; a piece may have no letter
    of_books = [text for text in texts if "bä" in text]
    n = len(of_code) + len(of_books)
    assert n > 3_900
    assert len(of_code) / n == pytest.approx(0.75, abs=0.03)
    crossing = [text for text in texts if "[SEP]" in text.removesuffix("[SEP]")]
    assert bool(crossing) == (kind == "anywhere")

    numbers = set(re.findall(r"\d{3}", " ".join(of_code)))

    assert len(numbers) > 30  # of 54 files


WRONG = {
    "data.weights must name each folder of .* once: it has 'books', 'code'": [
        {"books": 1}
    ],
    "data.weights: books=-1 must be a number": [{"books": -1}, {"code": 2}],
    "data.weights is not of the form": ["books:2", "code:1"],
    "data.weights: the shares must not all be 0": [{"books": 0}, {"code": 0}],
    "the training text of 'code' is too short": [{"books": 1}, {"code": 1}],
}


@pytest.mark.parametrize(("message", "weights"), WRONG.items())
def test_wrong_weights_are_refused_in_one_line(folder, weights, message):
    with one_line((ConfigError, CorpusError), message):
        _ = windows_of(folder, 5_600, weights, "anywhere").training_windows
