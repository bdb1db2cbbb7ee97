"""Vectors of texts, the search by them, and their export, which sentence-transformers opens itself."""

import sys

import numpy as np
import pytest
import sklearn.covariance
import torch

import experiment
import export
import finetune
import predict
from data.tasks.task import TEXT
from tests.checkpoints import checkpoint
from tests.conftest import SENTENCES, dotted, only_run, written
from tests.trained.conftest import csv_of_animals, of_all_tokens, of_characters
from trained.classifier import Classifier
from trained.load import load_trained
from trained.saved_classifier import load_classifier
from trained.similarity import mean_cosine, nearest, whitened
from trained.template import ids_of
from trained.vectors import layer_shares, mixed_vectors, vectors_of

TEXTS = [sentence.strip() for sentence in SENTENCES] + ["the dog", "why do the cats"]
KEYS = {
    "training__max_steps": 0,
    "training__evaluations": 1,
    "training__compile": "false",
    "training__stages": "[{until: 1.0, seq_len: 32}]",
    "sample__every_evaluations": 0,
    "device": "cpu",
}


@pytest.fixture
def sentence_transformers(monkeypatch):
    # as export.py does: the one that labml_nn installs needs torch's CUDA build
    monkeypatch.setitem(sys.modules, "torchvision", None)
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module", params=["bert", "roberta", "modernbert", "albert"])
def continued(request, tmp_path_factory, sentences, text_file):
    """A checkpoint, and a run that has its weights."""
    folder = tmp_path_factory.mktemp("checkpoint")
    source = checkpoint(folder / "model", request.param, sentences)
    keys = dotted({**KEYS, "data__corpus": text_file, "logs": folder / "logs"})
    words = [f"{key}={value}" for key, value in keys.items()]
    assert experiment.main(["--init-from", f"hf:{source}", *words]) == 0
    return source, load_trained(str(only_run(folder / "logs").path))


@pytest.fixture
def predicted(tmp_path, piped):
    """The vectors that predict.py writes for texts on standard input."""

    def predicted(trained, *options, texts=TEXTS):
        file = tmp_path / "folder" / "vectors.npy"
        file.unlink(missing_ok=True)
        piped("\n".join(texts).encode())
        words = [str(trained.run.path), "--vectors", str(file), *options]
        assert predict.main(words) == 0
        return np.load(file)

    return predicted


@pytest.fixture
def encoded(tmp_path, sentence_transformers):
    """The vectors that sentence-transformers computes with an export."""

    def encoded(trained, *options):
        folder = tmp_path / f"exported{len(list(tmp_path.glob('exported*')))}"
        words = ["--to", "sentence-transformers", str(folder), *options]
        assert export.main([str(trained.run.path), *words]) == 0
        model = sentence_transformers.SentenceTransformer(
            str(folder), device="cpu", trust_remote_code=True
        )
        return model.encode(TEXTS)

    return encoded


@of_all_tokens
def test_the_export_of_a_run_has_the_vectors_of_predict(trained, predicted, encoded):
    for options in ((), ("--layer", "1")):
        vectors = predicted(trained, *options)

        assert vectors.dtype == np.float32
        assert vectors.shape == (len(TEXTS), trained.encoder.d_model)
        np.testing.assert_allclose(encoded(trained, *options), vectors, atol=1e-5)


@pytest.mark.parametrize("options", [(), ("--pooling", "cls", "--layer", "1")])
def test_the_export_of_a_checkpoint_has_the_vectors_of_predict(
    continued, predicted, encoded, options
):
    _, trained = continued
    vectors = predicted(trained, *options)
    np.testing.assert_allclose(encoded(trained, *options), vectors, atol=1e-5)


def test_an_unchanged_checkpoint_has_the_vectors_of_sentence_transformers(
    continued, predicted, sentence_transformers
):
    source, trained = continued
    original = sentence_transformers.SentenceTransformer(str(source), device="cpu")
    np.testing.assert_allclose(predicted(trained), original.encode(TEXTS), atol=1e-5)


def test_a_classifier_gives_the_vectors_of_its_encoder(
    few_steps, plain, tmp_path, predicted
):
    file = csv_of_animals(tmp_path / "own.csv")
    words = ["--task", str(file), "--labels", "24", "--draws", "1"]
    folder = tmp_path / "classifier"
    assert finetune.main([str(plain.run.path), *words, "--save", str(folder)]) == 0
    saved = load_classifier(folder)
    ids = [ids_of(text, saved.vocabulary) for text in TEXTS]

    np.testing.assert_allclose(predicted(saved), vectors_of(saved, ids), atol=1e-6)
    shares = layer_shares(saved.classifier)
    assert len(shares) == saved.values["model.n_layers"] + 1
    assert shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(
        predicted(saved, "--mix"), mixed_vectors(saved.classifier, ids), atol=1e-6
    )


def test_a_classifier_that_reads_one_layer_mixes_that_layer(plain):
    classifier = Classifier(plain.model, n_labels=2, kind=TEXT)
    torch.nn.init.zeros_(classifier.output.weight)
    last = plain.encoder.d_model * plain.values["model.n_layers"]
    classifier.output.weight.data[0, last] = 3.0
    ids = [ids_of(text, plain.vocabulary) for text in TEXTS]

    expected = vectors_of(plain, ids)
    np.testing.assert_allclose(mixed_vectors(classifier, ids), expected, atol=1e-5)


@of_characters
def test_a_long_text_has_the_mean_vector_of_its_windows(trained):
    ids = ids_of("".join(SENTENCES), trained.vocabulary).repeat(5)
    n = trained.longest
    ids = ids[: 2 * n + 10]
    windows = ids.tensor_split(3)

    (of_text,) = vectors_of(trained, [ids])
    of_windows = vectors_of(trained, windows)

    shares = torch.tensor([len(window) for window in windows]) / len(ids)
    np.testing.assert_allclose(of_text, shares.numpy() @ of_windows, atol=1e-5)


TABLE = "number,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS))


@pytest.mark.parametrize(
    ("content", "options", "first"),
    [("\n\n".join(TEXTS), (), 3), (TABLE, ("--column", "text"), 3)],
)
@pytest.mark.parametrize("whiten", [(), ("--whiten",)])
def test_a_search_finds_the_text_itself_first(
    with_ngrams, tmp_path, printed, content, options, first, whiten
):
    file = written(tmp_path / "texts", content)
    words = ("--search", TEXTS[1], str(file), "--top", "2", *options, *whiten)

    best, second = printed(predict.main, with_ngrams.run.path, *words).splitlines()

    assert best == f"1.0000\tline {first}\t{TEXTS[1]}"
    assert float(second.split("\t")[0]) < 1


def test_the_isotropy_is_told(with_ngrams, tmp_path, capsys):
    file = written(tmp_path / "texts", "\n".join(TEXTS))
    words = [str(with_ngrams.run.path), "--search", "the cat", str(file)]

    assert predict.main(words) == 0

    told = capsys.readouterr().err
    vectors = vectors_of(
        with_ngrams, [ids_of(text, with_ngrams.vocabulary) for text in TEXTS]
    )
    assert told.startswith(f"mean cosine of two texts: {mean_cosine(vectors):.3f}; ")


def test_the_mean_cosine_is_that_of_all_pairs():
    vectors = np.random.default_rng(0).normal(size=(7, 3)) + 1
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = (units @ units.T)[np.triu_indices(7, 1)]

    assert mean_cosine(vectors) == pytest.approx(pairs.mean())


def test_whitening_shrinks_as_ledoit_and_wolf_estimate():
    """Also with fewer vectors than components."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(12, 20)) @ generator.normal(size=(20, 20)) + 5
    covariance, _ = sklearn.covariance.ledoit_wolf(vectors)

    centered = vectors - vectors.mean(0)

    lengths = np.square(whitened(vectors, vectors)).sum(1)

    expected = (centered @ np.linalg.inv(covariance) * centered).sum(1)
    np.testing.assert_allclose(lengths, expected, rtol=1e-4)


def test_the_nearest_are_those_with_the_highest_cosines():
    vectors = np.array([[1.0, 0.0], [0.0, 3.0], [2.0, 2.0]])
    (best, cosine), (second, _) = nearest(np.array([0.0, 1.0]), vectors, 2)

    assert (best, second) == (1, 2)
    assert cosine == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--vectors", "v.npy", "--layer", "9"), "--layer 9: the model has "),
        (("--vectors", "v.npy", "--pooling", "cls"), "only runs with --init-from hf:"),
        (("--vectors", "home"), "exists already"),
        (("--search", "a", "nowhere.txt"), "cannot read nowhere.txt"),
        (("--search", ""), "--search needs a text"),
        (("--whiten", "a"), "--whiten needs --vectors or --search"),
        (("--vectors", "v.npy", "--mix"), "--mix needs the folder of a classifier"),
        (("--vectors", "v.npy", "--score"), "--vectors cannot be combined with"),
    ],
)
def test_wrong_options_are_refused_before_the_model_is_loaded(
    with_ngrams, refusal, monkeypatch, tmp_path, options, problem
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("predict.load", None)
    assert problem in refusal(predict.main, with_ngrams.run.path, *options)
