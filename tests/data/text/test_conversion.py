import json
import multiprocessing
import os
import resource
import time

import pytest
import torch

from data import corpus
from data.corpus import CorpusError, load_corpus
from data.play.grammar import play
from data.text import conversion, sources
from data.text.conversion import convert
from data.text.sources import Reading, list_sources
from data.vocabulary import Vocabulary
from runs.files import write_json
from tests.conftest import in_files, limited, one_line

TEXT = play(300_000)
VOCABULARY = Vocabulary(TEXT)
N_TRAINING = int(len(TEXT) * 0.9)
# for training, of each of three files
N_CHARS = [100_000, 100_000, N_TRAINING - 200_000]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, empty_cache):
    monkeypatch.setattr(sources, "BLOCK", 2_000)
    monkeypatch.setattr(conversion, "SECONDS_BETWEEN_NOTES", 0)
    monkeypatch.setattr(corpus, "IN_MEMORY", 0)


@pytest.fixture
def text(tmp_path):
    return in_files(tmp_path / "texts", TEXT, 3)


def content(folder):
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.startswith("progress.json")
    }


def test_a_conversion_killed_ten_times_gives_the_same_arrays(text, tmp_path):
    files = list_sources(text, Reading()).sources
    convert(files, Reading(), VOCABULARY, N_CHARS, tmp_path / "whole")
    folder = tmp_path / "killed"
    ids = folder / "training.ids"
    sizes = []
    for number in range(10):
        process = multiprocessing.get_context("fork").Process(
            target=convert, args=(files, Reading(), VOCABULARY, N_CHARS, folder)
        )
        process.start()
        while process.is_alive() and (
            not ids.exists() or ids.stat().st_size < (number + 1) * N_TRAINING // 12
        ):
            time.sleep(0.001)

        process.kill()
        process.join()
        sizes.append(ids.stat().st_size)

    assert not (folder / "done.json").exists()
    assert sizes == sorted(sizes)  # each attempt went on from the one before

    convert(files, Reading(), VOCABULARY, N_CHARS, folder)

    assert content(folder) == content(tmp_path / "whole")


def test_what_is_not_noted_as_progress_is_written_again(text, tmp_path, monkeypatch):
    files = list_sources(text, Reading()).sources
    folder = tmp_path / "ids"
    noted = []

    def write_and_keep(path, content):
        noted.append(json.dumps(content))
        write_json(path, content)

    monkeypatch.setattr(conversion, "write_json", write_and_keep)
    convert(files, Reading(), VOCABULARY, N_CHARS, folder)
    whole = content(folder)
    for progress in (noted[len(noted) // 2], "damaged"):
        (folder / "done.json").unlink()
        (folder / "progress.json").write_text(progress)
        convert(files, Reading(), VOCABULARY, N_CHARS, folder)

        assert content(folder) == whole


def test_a_full_disk_gives_one_line_and_the_next_call_continues(text, tmp_path):
    loaded = load_corpus(str(text))
    with (
        limited(resource.RLIMIT_FSIZE, 100_000),
        one_line(CorpusError, "cannot convert the text"),
    ):
        loaded.stored.tokenized(VOCABULARY)

    check_training_ids(loaded.stored)


def check_training_ids(stored):
    ids = stored.tokenized(VOCABULARY).training.ids
    assert torch.equal(ids.long(), VOCABULARY.encode(TEXT[:N_TRAINING]))


@pytest.mark.parametrize("name", ["training.ids", "documents", "done.json"])
def test_a_damaged_conversion_is_repeated(name, text):
    loaded = load_corpus(str(text))
    loaded.stored.tokenized(VOCABULARY)
    (path,) = corpus.CACHE.rglob(name)
    path.write_bytes(path.read_bytes()[:10])
    check_training_ids(loaded.stored)


def test_a_survey_that_fails_goes_on_from_its_last_line(text):
    (text / "z.txt").write_bytes(b"a" * 200_000 + b"\0")
    with one_line(CorpusError, "is a binary file"):
        load_corpus(str(text))

    (text / "z.txt").unlink()
    said = []
    load_corpus(str(text), said.append)

    assert said == []


def test_a_text_is_converted_once_and_a_changed_file_is_announced_and_converted_again(
    text, monkeypatch
):
    loaded = load_corpus(str(text))
    check_training_ids(loaded.stored)
    os.utime(text / "001.txt")  # a new time, the same content
    with monkeypatch.context() as patch:
        # would be called to convert
        patch.setattr("data.text.conversion.read_blocks", None)
        patch.setattr("data.text.survey.read_blocks", None)
        again = load_corpus(str(text))

        assert again.sha256 == loaded.sha256

        check_training_ids(again.stored)

    changed = "T" + (text / "000.txt").read_text()[1:]  # of the same size
    (text / "000.txt").write_text(changed)
    said = []

    again = load_corpus(str(text), said.append)

    assert said == ["reading 1 of 3 files (0.1 MB), which are new or have changed"]
    assert again.sha256 != loaded.sha256
    assert again.training.startswith(changed[:50_000])

    ids = again.stored.tokenized(VOCABULARY).training.ids

    assert VOCABULARY.decode(ids[:50]) == changed[:50]
