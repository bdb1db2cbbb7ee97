import io
import sys

import pytest

from tests.conftest import made_once, train_in, written
from tests.tokenizers import saved
from trained import effort
from trained.load import load_trained

CHARACTERS = ["plain", "with_ngrams"]
KINDS = ["bytes", "bpe", "wordpiece", "unigram", "unknown"]
EXTRA = "Zürich, 中文 and Zoë.\n"


def small_run(folder, corpus, **keys):
    """A small run that has learned the sentences a little."""
    keys = {"data__corpus": corpus, "training__max_steps": 150} | keys
    train_in(folder, **keys).run.save_status("completed")
    return load_trained(str(folder))


def shared_run(factory, name, corpus, **keys):
    """A small run, trained by one of all parallel processes."""

    def make(folder):
        small_run(folder / "run", corpus, **keys)

    return load_trained(str(made_once(factory, name, make) / "run"))


@pytest.fixture(scope="session")
def plain(tmp_path_factory, text_file):
    """A run without n-gram embeddings."""
    return shared_run(tmp_path_factory, "plain", text_file)


@pytest.fixture(scope="session")
def with_ngrams(tmp_path_factory, text_file):
    """A run with n-gram embeddings."""
    return shared_run(tmp_path_factory, "ngrams", text_file, model__ngrams=4)


@pytest.fixture(scope="session", params=KINDS)
def trained(request, tmp_path_factory, sentences):
    """A run of each kind of tokens, or of `CHARACTERS` if a test asks for them; `unknown` has
    characters and [UNK]."""
    if request.param in CHARACTERS:
        return request.getfixturevalue(request.param)

    folder = tmp_path_factory.mktemp(request.param)
    lines = sentences.splitlines(True)
    lines[::20] = [line + EXTRA for line in lines[::20]]
    text = written(folder / "text.txt", "".join(lines))
    tokens = {"bytes": "bytes", "bpe": "bpe:280"}.get(request.param, "characters")
    keys = {"training__max_steps": 50, "data__tokens": tokens}
    if request.param in ("wordpiece", "unigram"):
        keys["data__tokens"] = str(saved(folder, request.param, sentences[:2_000]))
    if request.param == "unknown":
        keys["data__unknown_below"] = 0.003

    keys["model__ngrams"] = 0 if request.param == "bytes" else 2
    return shared_run(tmp_path_factory, request.param, text, **keys)


@pytest.fixture(scope="module")
def few_steps():
    """Fine-tunes in one epoch with one penalty, for tests of other things than how well a task is
    learned."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr("trained.classification.EPOCHS", 1)
        context.setattr("trained.classification.INVERSE_PENALTIES", (0.1,))
        for each in (effort.GENTLE, effort.STRONG, effort.SLOW, effort.UNTRAINED):
            context.setitem(each, "n_steps", 2)

        yield


def csv_of_animals(path, suffix="", n=40):
    """A CSV file with a task: is the text about a cat or a dog? Each text has an ending of its own."""
    animals = [("dog", "cat")[i % 2] for i in range(n)]
    rows = [
        f"the {animal} sat {i}{suffix},{animal}" for i, animal in enumerate(animals)
    ]
    return written(path, "\n".join(["text,label", *rows]))


@pytest.fixture
def piped(monkeypatch):
    """Sets standard input to some bytes."""

    def pipe(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return pipe


of_characters = pytest.mark.parametrize("trained", CHARACTERS, indirect=True)
of_all_tokens = pytest.mark.parametrize("trained", CHARACTERS + KINDS, indirect=True)
