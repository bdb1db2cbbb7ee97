import sys

import pytest

from tests.conftest import train_in
from trained.load import Trained, load_trained

sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]  # as in export.py


def small_run(folder, corpus, **keys) -> Trained:
    """A small run that has learned the sentences a little."""
    keys = {"data__corpus": str(corpus), "training__max_steps": 150} | keys
    train_in(folder, **keys).run.save_status("completed")
    return load_trained(str(folder))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    path.write_text(sentences, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def plain(tmp_path_factory, text_file) -> Trained:
    """A run without n-gram embeddings."""
    return small_run(tmp_path_factory.mktemp("plain") / "run", text_file)


@pytest.fixture(scope="session")
def with_ngrams(tmp_path_factory, text_file) -> Trained:
    """A run with n-gram embeddings."""
    return small_run(tmp_path_factory.mktemp("ngrams") / "run", text_file, model__ngrams=4, model__ngram_rows=5_000)
