"""`--init-from`: a run that starts with the weights of another one."""

import shutil

import pytest
import torch

from configs.command_line.command import parse, resolve
from configs.experiment import configs_of
from configs.keys import ConfigError
from data.tokens.subwords import SubwordVocabulary, renumbered
from experiment import main
from runs.find import find_run
from runs.run_folder import RunFolder
from tests.conftest import TINY, configs_for, dotted, one_line, written
from trained.initial_weights import copy_weights, replaced_tokens


def copied(new, old, **keys):
    """New configs whose model has the weights of an old run."""
    copy_weights(new.network, new.data.vocabulary, resolve(TINY, dotted(keys)), old)
    return new


@pytest.mark.parametrize("ngrams", [0, 4])
def test_known_characters_keep_their_logits_in_a_larger_vocabulary(
    train, tmp_path, ngrams
):
    keys = {"model__ngrams": ngrams}
    old = train(training__max_steps=30, **keys)
    text = "the cat sat on the mat. " + "Zürich: 2 + 2 = 4! " * 100
    characters = "".join(old.configs.data.vocabulary.characters)
    new = configs_for(
        written(tmp_path / "new.txt", text), data__extra_characters=characters, **keys
    )
    before = old.configs.data.vocabulary

    after = new.data.vocabulary

    assert set(before.characters) | set(text) == set(after.characters)

    copied(new, old.run, **keys)
    ids = [after.id_of(token) for token in (*before.characters, *before.special_tokens)]
    masked = before.encode("why do the birds sing?")
    masked[3::4] = before.mask_token
    with torch.no_grad():
        expected = old.configs.network.eval()(masked[None])
        logits = new.network.eval()(torch.tensor(ids)[masked][None])

    assert torch.allclose(logits[:, ids], expected, atol=1e-5)


def test_each_token_keeps_a_symbol_of_its_own_when_the_vocabulary_grows_twice(
    train, tmp_path
):
    keys = {"training__max_steps": 1, "model__ngrams": 2}
    run = train(**keys).run
    for text in ("äöü the cat ", "ßé the dog "):
        keys["data__corpus"] = written(tmp_path / f"{text[0]}.txt", text * 300)
        keys["data__extra_characters"] = "".join(run.vocabulary()["characters"])
        new = copied(configs_of(resolve(TINY, dotted(keys))), run, **keys)

        run = train(new, **keys).run

        assert (
            len(new.network.encoder.ngrams.symbols.unique())
            == new.data.vocabulary.n_tokens + 1
        )


def test_another_model_is_refused_in_one_line(train, corpus_file):
    old = train(training__max_steps=1)

    def check_refused(reason, **keys):
        with one_line(ConfigError, reason):
            copied(configs_for(corpus_file, **keys), old.run, **keys)

    check_refused("model.d_model=64 differs from", model__d_model=64)
    check_refused("objective.nsp=True differs from", objective__nsp=True)
    corpus_file.write_text("abc" * 500)
    check_refused(r"add them to data\.extra_characters")  # a smaller vocabulary


def test_weights_of_earlier_versions_lack_symbols(train, corpus_file):
    old = train(training__max_steps=1, model__ngrams=2)
    new = configs_for(corpus_file, model__ngrams=2).network
    weights = old.configs.network.state_dict()
    symbols = weights.pop("encoder.ngrams.symbols")

    new.load_state_dict(weights)

    assert torch.equal(new.encoder.ngrams.symbols, symbols)


def test_the_command_takes_the_config_of_the_run(plain, tmp_path):
    logs = tmp_path / "logs"
    old = RunFolder(shutil.copytree(plain.run.path, logs / "mlm" / "old"))
    text = written(tmp_path / "new.txt", "The cat sat on 1 mat.\n" * 200)
    from_old = ["--init-from", str(old.path)]
    words = [f"data.corpus={text}", "training.max_steps=2", f"logs={logs}"]
    characters = set(old.vocabulary()["characters"])

    def run_with(*options):
        assert main([*options, *words]) == 0
        return find_run("last", logs)

    values = parse([*from_old, *words, "data.extra_characters=é"]).values

    assert values["model.d_model"] == 32
    assert set(values["data.extra_characters"]) == characters | {"é"}
    assert values["initial_weights"] == "old"
    assert parse(from_old).values["logs"] == "logs"

    new = run_with(*from_old)
    # which names the initial weights
    again = run_with("--config", str(new.config_path))
    fresh = run_with("--config", str(new.config_path), "initial_weights=")

    assert set(new.vocabulary()["characters"]) == characters | {"T", "1"}

    first = [run.metrics()[0]["loss.valid"] for run in (new, again, fresh)]
    assert first[0] == first[1] < 0.9 * first[2]
    assert main(["--resume", str(new.path), "training.max_steps=4"]) == 0


@pytest.mark.parametrize("ngrams", [3, 4])
def test_weights_of_an_earlier_version_bring_their_ngrams(
    train, corpus_file, monkeypatch, ngrams
):
    keys = {"model__ngrams": ngrams, "model__ngram_parts": 1}
    with monkeypatch.context() as earlier:
        earlier.setattr(
            "model.ngrams.NGRAMS", ((-2, -1), (-1, 1), (-1, 1, 2), (-4, -3, -2, -1))
        )
        old = train(data__corpus=str(corpus_file), training__max_steps=2, **keys)

    new = copied(configs_for(corpus_file, **keys), old.run, **keys)
    ids = old.configs.data.vocabulary.encode("the cat sat")[None]

    assert torch.equal(new.network.eval()(ids), old.configs.network.eval()(ids))


@pytest.mark.parametrize("ngrams", [0, 2])
def test_new_subwords_start_at_the_mean_of_those_that_they_replace(
    train, tmp_path, ngrams
):
    keys = {"model__ngrams": ngrams, "data__tokens": "bpe:280"}
    old = train(training__max_steps=3, **keys)
    text = written(
        tmp_path / "new.txt", "The cats sat on mats, why do birds sing? " * 300
    )
    keys |= {"data__tokens": "bpe:300"}
    new = copied(configs_for(text, **keys), old.run, **keys)

    before = old.configs.data.vocabulary
    after = new.data.vocabulary
    rows = {}
    for name, weights in (("before", old.configs.network), ("after", new.network)):
        rows[name] = weights.state_dict()["encoder.embedding.weight"]

    n_new = 0
    for i, token in enumerate(after.ordinary):
        text = after.decode([i])
        if token not in before.ordinary:
            n_new += 1
            pieces = rows["before"][before.encode(text)]
            assert len(pieces) > 1
            assert torch.allclose(rows["after"][i], pieces.mean(0))
        else:
            assert torch.equal(rows["after"][i], rows["before"][before.id_of(token)])

    assert n_new > 10


def test_the_middle_of_a_word_replaces_pieces_inside_words():
    """In WordPiece, whose pieces inside words have other names."""

    def vocabulary(*tokens):
        vocab = {
            token: i for i, token in enumerate(["[UNK]", "[PAD]", "[MASK]", *tokens])
        }
        model = {"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]"}
        model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
        content = {
            "added_tokens": [],
            "model": model,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
        }
        return SubwordVocabulary(renumbered(content))

    old = vocabulary("a", "b", "##a", "##b")
    new = vocabulary("a", "b", "##a", "##b", "##ab", "ab")
    replaced = replaced_tokens(new, old)

    assert replaced == {4: [2, 3], 5: [0, 3]}
