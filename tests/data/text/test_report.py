"""Near copies, and the report of what a run reads."""

import random

import pyarrow
import pyarrow.parquet
import pytest

from data.corpus import Corpus, load_corpus
from data.play.grammar import play
from data.text import near_copies
from data.text.near_copies import near_copies as near_copies_of
from data.text.report import text_report
from data.tokens.bytes import ByteVocabulary
from data.vocabulary import MASK, PAD, SEP, characters_of
from tests.data.text.helpers import vocabulary_of

WORDS = play(100_000).split()


@pytest.fixture(autouse=True)
def cached(empty_cache):
    pass


def documents(n, seed=1):
    generator = random.Random(seed)
    texts = []
    for _ in range(n):
        texts.append(" ".join(generator.choices(WORDS, k=generator.randint(20, 300))))
    return texts


def changed(text, separator=" "):
    """Another word in the middle."""
    words = text.split(" ")
    words[len(words) // 2] = "xyz"
    return separator.join(words)


def stored(path, texts):
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    return load_corpus(str(path))


def test_near_copies_are_counted_and_other_documents_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(near_copies, "CHUNK", 10_000)
    texts = documents(1_000)
    again = [changed(text, "\n") for text in texts[:500]]
    corpus = stored(tmp_path / "near.parquet", texts + again)
    split = corpus.stored.split

    near = near_copies_of(corpus.stored.normal, split)

    # two thirds of the documents have one, and nine tenths of these in training
    assert near.n_validation == pytest.approx(150, abs=20)
    assert near.n_near / near.n_validation == pytest.approx(0.6, abs=0.12)

    other = stored(tmp_path / "other.parquet", texts)
    assert near_copies_of(other.stored.normal, other.stored.split).n_near == 0


def test_near_copies_of_texts_without_spaces(tmp_path):
    generator = random.Random(1)
    texts = []
    for _ in range(300):
        codes = generator.choices(range(0x4E00, 0x5E00), k=60)
        texts.append("".join(map(chr, codes)))
    again = [text[:30] + "水" + text[31:] for text in texts]
    corpus = stored(tmp_path / "near.parquet", texts + again)

    near = near_copies_of(corpus.stored.normal, corpus.stored.split)

    assert near.n_near / near.n_validation > 0.7


def test_short_and_equal_templates_are_no_near_copies(tmp_path):
    texts = [f"in line {number}" for number in range(200)]
    corpus = stored(tmp_path / "short.parquet", texts)
    near = near_copies_of(corpus.stored.normal, corpus.stored.split)

    assert near.n_near == 0


def report_of(corpus, vocabulary, share=1.0):
    return text_report(corpus, vocabulary, corpus.stored.tokenized(vocabulary), share)


def test_the_report_has_at_most_six_lines_with_the_figures_of_the_text(tmp_path):
    texts = documents(200)
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in enumerate([*texts, *texts[:30], *map(changed, texts[:100])]):
        (folder / f"{name}").write_text(text)
    (folder / "__init__.py").touch()
    (folder / "image.png").write_bytes(bytes(100))
    (folder / "logo.png").write_bytes(bytes(100))
    corpus = load_corpus(str(folder))
    vocabulary = vocabulary_of(corpus)

    lines = report_of(corpus, vocabulary)

    whole = "\n".join(lines)
    tokens = corpus.stored.tokenized(vocabulary)
    n_documents = len(tokens.documents)
    assert len(lines) <= 6
    n_chars = len(tokens.training) - n_documents
    assert f"{n_documents} documents ({n_chars:,} characters) for training" in lines[0]
    assert "30 exact copies" in whole
    assert "3 files: '__init__.py', which is empty; 2 such as 'image.png'" in whole
    assert "100.0%" in whole
    assert "near copy" in lines[-1]
    assert report_of(corpus, vocabulary) == lines  # from the cache


def test_the_report_says_what_is_not_drawn_and_what_is_cut(tmp_path):
    path = tmp_path / "texts"
    (path / "one").mkdir(parents=True)
    (path / "one" / "long.txt").write_text("abcd" * 1_000)
    corpus = load_corpus(str(path))

    lines = report_of(corpus, ByteVocabulary([PAD, MASK, SEP]), share=0.5)

    assert "50.0%" in lines[-1]
    assert "'one'" in lines[-1]
    assert "3,600, 3,600, 3,600 bytes of 1.00 characters" in lines[1]


def test_the_report_counts_the_copies_of_the_validation_text_of_the_user(tmp_path):
    texts = documents(50)
    for name, part in {"all": texts + texts[:5], "valid": texts[:10]}.items():
        pyarrow.parquet.write_table(
            pyarrow.table({"text": part}), tmp_path / f"{name}.parquet"
        )
    corpus = load_corpus(
        str(tmp_path / "all.parquet"), validation=str(tmp_path / "valid.parquet")
    )

    lines = report_of(corpus, vocabulary_of(corpus))

    assert "15 exact copies of documents (15 are in data.validation)" in lines[2]


def test_one_text_reports_its_unknown_characters_only():
    corpus = Corpus.from_text("text", "abcd" * 100 + "e")
    unknown = characters_of(corpus.counts, "", 0.1, ())

    assert text_report(corpus, characters_of(corpus.counts, "", 0, ()), None, 1.0) == []

    rare = Corpus.from_text("text", "abcde" * 100)
    (line,) = text_report(rare, unknown, None, 1.0)
    assert "20.00% become [UNK]" in line
