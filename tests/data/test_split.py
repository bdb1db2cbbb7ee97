"""Texts in several folders: the split, copies, the sample, and weights."""

import gzip
import itertools
from pathlib import Path

import pytest
import torch

import data.stored
from configs.keys import ConfigError
from data import corpus
from data.corpus import CorpusError, load_corpus
from data.play.grammar import play
from data.split import split
from data.survey import Surveyed
from tests.conftest import configs_for, one_line

SIZES = {"books": 400, "code": 100}  # characters per file
N_FILES = {"books": 40, "code": 60}


def surveyed(*sizes: int) -> list[Surveyed]:
    """Files with hashes in the order 1, 2, 3 ..."""
    return [Surveyed(Path(f"{i}"), n, 0, f"{i:064x}", n, {}) for i, n in enumerate(sizes)]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(corpus, "CACHE", tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Books and code: the letters of their documents differ, and each document ends with its number."""
    for name, size in SIZES.items():
        (tmp_path / "texts" / name).mkdir(parents=True)
        for i in range(N_FILES[name]):
            text = (f"{name[0]}ä " * size)[: size - 4] + f"{i:03}\n"
            (tmp_path / "texts" / name / f"{i:03}.txt").write_text(text)
    return tmp_path / "texts"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1_005], [904]),  # one file: its first 90%
        ([10] * 10, [10] * 9 + [0]),
        ([10] * 15, [10] * 13 + [0, 0]),  # the border is inside a file, which is not cut
        ([100, 10], [99, 0]),  # but one with more than a tenth is
        ([10, 100], [10, 89]),
        ([1, 1, 900, 1], [1, 1, 810, 0]),
    ],
)
def test_the_last_tenth_by_hash_is_for_validation_in_whole_files(sizes, expected):
    assert split(surveyed(*sizes), ["."] * len(sizes)) == expected
    both = split(surveyed(*sizes, *sizes), ["a"] * len(sizes) + ["b"] * len(sizes))
    assert both == expected * 2  # each folder by itself


def test_documents_of_one_file_stay_on_one_side_and_folders_have_their_shares(folder):
    loaded = load_corpus(str(folder))
    sides = {name: [] for name in SIZES}
    for file in loaded.stored.files:
        text = file.path.read_text()
        assert (text in loaded.training) != (text in loaded.validation)
        sides[file.path.parent.name].append(text in loaded.validation)
    assert {name: sum(found) for name, found in sides.items()} == {"books": 4, "code": 6}
    assert any(sides["books"][:-4])  # by hash, not by name
    assert len(loaded.training) + len(loaded.validation) == sum(SIZES[name] * N_FILES[name] for name in SIZES)
    first = loaded.sha256
    (folder / "books").rename(folder / "a")
    assert load_corpus(str(folder)).training.startswith(loaded.training[:400])  # the name of a folder does not matter
    (folder / "a").rename(folder / "books")
    assert load_corpus(str(folder)).sha256 == first


def test_copies_are_left_out_and_counted(folder):
    said: list[str] = []
    whole = load_corpus(str(folder))
    for i in range(3):
        (folder / f"{i}.txt").write_bytes((folder / "code" / "007.txt").read_bytes())
    (folder / "code" / "999.txt").write_bytes((folder / "books" / "001.txt").read_bytes())
    loaded = load_corpus(str(folder), said.append)
    assert said[-1] == "leaving out 4 of 104 files, which are copies of others"
    assert loaded.counts == whole.counts
    assert [file.path.name for file in loaded.stored.files if "007" in file.path.read_text()] == ["0.txt", "007.txt"]


@pytest.mark.parametrize("letter", ["a", "ä"])  # plain files of one byte per character are read from any offset
@pytest.mark.parametrize("compress", [False, True])
def test_the_sample_is_spread_over_the_whole_of_each_part(tmp_path, monkeypatch, letter, compress):
    monkeypatch.setattr(data.stored, "SAMPLE", 1_000)
    monkeypatch.setattr(data.stored, "PIECE", 100)
    monkeypatch.setattr("data.sources.BLOCK", 3_000)
    text = play()[:50_000].replace("a", letter)
    (tmp_path / "texts").mkdir()
    borders = [0, 5_000, 5_050, 30_000, 50_000]
    for i, (begin, end) in enumerate(itertools.pairwise(borders)):
        content = text[begin:end].encode()
        path = tmp_path / "texts" / f"{i}.txt{'.gz' * compress}"
        path.write_bytes(gzip.compress(content) if compress else content)
    loaded = load_corpus(str(tmp_path / "texts"))
    stored = loaded.stored
    halves = {0: "", 1: ""}
    for (begin, end), n in zip(itertools.pairwise(borders), stored.n_training, strict=True):
        halves[0] += text[begin : begin + n]
        halves[1] += text[begin + n : end]
    for part, whole in zip((loaded.training, loaded.validation), halves.values(), strict=True):
        starts = [i * len(whole) // 10 for i in range(10)]
        assert part == "".join(whole[start : start + 100] for start in starts)
    assert loaded.is_sample


@pytest.mark.parametrize("within_documents", [False, True])
def test_weights_are_the_shares_of_the_windows(folder, within_documents):
    weights = [{"books": 1}, {"code": 3}]
    stages = [{"until": 1.0, "seq_len": 32}]
    keys = {"data__within_documents": within_documents, "training__stages": stages}
    c = configs_for(folder, data__weights=weights, **keys).data
    tokens, offsets, _ = c.windows.draw(4_000, 32)
    texts = [c.vocabulary.decode(window) for window in tokens]
    assert not [text for text in texts if "bä" in text and "cä" in text]  # no window crosses the border of folders
    share = sum("cä" in text for text in texts) / len(texts)
    assert share == pytest.approx(0.75, abs=0.03)  # 4.4 standard deviations
    in_code = torch.tensor(["cä" in text for text in texts])
    begins = offsets[in_code, 0]
    n_training = c.loaded.stored.folder_chars
    low, high = n_training["books"], n_training["books"] + n_training["code"]
    assert begins.min() < low + 150
    assert begins.max() > high - 150
    assert begins.double().mean() == pytest.approx((low + high) / 2, rel=0.02)  # evenly in the folder
    crossing = [text for text in texts if "\n" in text[:-1]]
    assert bool(crossing) == (not within_documents)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([{"books": 1}], "data.weights must name each folder of .* once, which has 'books', 'code'"),
        ([{"books": -1}, {"code": 2}], "data.weights is not of the form"),
        ([{"books": 0}, {"code": 0}], "must not all be 0"),
        (["books"], "data.weights is not of the form"),
        ([{"books": 1}, {"code": 1}, {"code": 2}], "data.weights is not of the form"),
    ],
)
def test_wrong_weights_are_refused_in_one_line(folder, weights, message):
    with one_line(ConfigError, message):
        _ = configs_for(folder, data__weights=weights).data.windows


def test_weights_of_folders_that_have_no_window_are_refused(folder):
    keys = {"data__within_documents": True, "training__stages": [{"until": 1.0, "seq_len": 128}]}
    with one_line(CorpusError, "no training text of 'code' has 128 tokens"):
        _ = configs_for(folder, data__weights=[{"books": 1}, {"code": 1}], **keys).data.windows
    with one_line(ConfigError, "has one file and no folders"):
        _ = configs_for("play", data__weights=[{"books": 1}]).data.windows
