"""Texts in several folders: the split, copies, the sample, and weights."""

import gzip
import re
import shutil
from pathlib import Path

import pytest

import data.text.stored
from configs.keys import ConfigError
from data.corpus import CorpusError, load_corpus
from data.play.grammar import play
from data.text.survey import Surveyed, split
from tests.conftest import configs_for, one_line
from tests.data.text.test_sources import both_parts

SIZES = {"books": (40, 400), "code": (60, 100)}  # files and their characters


@pytest.fixture
def folder(tmp_path, empty_cache):
    """Books and code: each file has letters of its folder, and ends with its number."""
    for name, (n, size) in SIZES.items():
        files = tmp_path / "texts" / name
        files.mkdir(parents=True)
        for i in range(n):
            text = (f"{name[0]}ä " * size)[: size - 4]
            (files / f"{i:03}").write_text(f"{text}{i:03}\n")

    return tmp_path / "texts"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1_005], [904]),  # one file: its first 90%
        # the border is inside a file, which is not cut
        ([10] * 15, [10] * 13 + [0, 0]),
        ([100, 10], [99, 0]),  # but one with more than a tenth is
        ([1, 1, 900, 1], [1, 1, 810, 0]),
    ],
)
def test_the_last_tenth_by_hash_is_for_validation(sizes, expected):
    files = []
    for i, n_chars in enumerate([*sizes, *sizes]):
        files.append(
            Surveyed(Path(f"{i}"), n_chars, 0, "text", f"{i:064x}", n_chars, {})
        )

    # each folder by itself
    assert split(files, ["a"] * len(sizes) + ["b"] * len(sizes)) == expected * 2


def test_documents_of_one_file_stay_on_one_side_and_folders_have_their_shares(folder):
    loaded = load_corpus(str(folder))
    in_validation = {"books": [], "code": []}
    for file in loaded.stored.files:
        text = file.path.read_text()
        assert (text in loaded.training) != (text in loaded.validation)

        in_validation[file.path.parent.name].append(text in loaded.validation)

    assert sum(in_validation["books"]) == 4
    assert sum(in_validation["code"]) == 6
    assert any(in_validation["books"][:-4])  # by hash, not by name


def test_copies_are_left_out_and_counted(folder):
    said = []
    whole = load_corpus(str(folder))
    for name in ("0", "1", "code/999"):
        shutil.copy(folder / "code" / "007", folder / name)

    loaded = load_corpus(str(folder), said.append)

    assert said[-1] == "leaving out 3 of 103 files, which are copies of others"
    assert loaded.counts == whole.counts


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_sample_is_spread_over_the_whole_of_each_part(
    tmp_path, empty_cache, monkeypatch, suffix
):
    monkeypatch.setattr(data.text.stored, "SAMPLE", 1_000)
    monkeypatch.setattr(data.text.stored, "PIECE", 100)
    monkeypatch.setattr("data.text.sources.BLOCK", 3_000)
    text = play()[:50_000].replace("a", "ä")
    contents = [text[:5_000], text[5_000:5_050], text[5_050:30_000], text[30_000:]]
    folder = tmp_path / "texts"
    folder.mkdir()
    for i, content in enumerate(contents):
        encoded = content.encode()
        if suffix:
            encoded = gzip.compress(encoded)

        (folder / f"{i}{suffix}").write_bytes(encoded)

    loaded = load_corpus(str(folder))
    wholes = both_parts(contents, loaded.stored.n_training)

    for whole, sample in zip(wholes, (loaded.training, loaded.validation), strict=True):
        assert sample == "".join(whole[i * len(whole) // 10 :][:100] for i in range(10))


def windows_of(folder, seq_len, weights, within_documents):
    data_keys = {"data__weights": weights, "data__within_documents": within_documents}
    stages = [{"until": 1.0, "seq_len": seq_len}]
    return configs_for(folder, training__stages=stages, **data_keys).data


@pytest.mark.parametrize("within_documents", [False, True])
def test_weights_are_the_shares_of_the_windows(folder, within_documents):
    data = windows_of(folder, 32, [{"books": 1}, {"code": 3}], within_documents)
    texts = [
        data.vocabulary.decode(window)
        for window in data.training_windows.draw(4_000, 32).tokens
    ]
    of_code = [text for text in texts if "cä" in text]

    # no window crosses the border of folders
    assert not any("bä" in text for text in of_code)
    # 4.4 standard deviations
    assert len(of_code) / 4_000 == pytest.approx(0.75, abs=0.03)
    assert any("\n" in text[:-1] for text in texts) == (not within_documents)

    numbers = set(re.findall(r"\d{3}", " ".join(of_code)))

    assert len(numbers) > 30  # of 54 files


WRONG = {
    "data.weights must name each folder of .* once: it has 'books', 'code'": [
        {"books": 1}
    ],
    "data.weights: books=-1 must be a number": [{"books": -1}, {"code": 2}],
    "data.weights is not of the form": ["books:2", "code:1"],
    "data.weights: the shares must not all be 0": [{"books": 0}, {"code": 0}],
    "no training text of 'code' has 128 tokens": [{"books": 1}, {"code": 1}],
}


@pytest.mark.parametrize(("message", "weights"), WRONG.items())
def test_wrong_weights_are_refused_in_one_line(folder, weights, message):
    with one_line((ConfigError, CorpusError), message):
        _ = windows_of(folder, 128, weights, True).training_windows
