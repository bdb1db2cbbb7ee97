"""`data.tokens` on the command line, and runs that are resumed or continued with their tokens."""

import json
import sys

import pytest

from configs.command_line.command import parse
from configs.keys import ConfigError
from data.text.sources import CorpusError
from experiment import main
from runs.find import find_run
from tests.conftest import SENTENCES, config_file, written
from tests.tokenizers import saved

TEXT = "".join(SENTENCES) * 20


WRONG = {
    "": "data.tokens is empty",
    "byte": "found no file 'byte': did you mean bytes?",
    "words": "found no file 'words': give characters, bytes, bpe:N",
    "~nobody_here/tokenizer.json": "found no file",
    "x" * 5_000: "found no file",
}
for size in ["256", "", "many", "8e3", "-300", "99999999999999999999", "٣٠٠"]:
    WRONG[f"bpe:{size}"] = "needs an integer N from 257 to 1,000,000"


@pytest.mark.parametrize(("tokens", "message"), WRONG.items())
def test_wrong_tokens_are_one_line_before_any_work(refusal, tmp_path, tokens, message):
    assert message in refusal(
        main, f"data.tokens={tokens}", f"logs={tmp_path / 'logs'}", before=""
    )
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    "content",
    [b"{", b"\xff", b"{}", b'"a"', b'{"model": {"vocab": {}}}', b"[" * 100_000],
)
def test_a_wrong_file_is_one_line_before_any_work(refusal, tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    line = refusal(main, f"data.tokens={path}", before="")

    assert "is not a tokenizer.json of Hugging Face" in line
    assert "is not a tokenizer.json" in refusal(main, f"data.tokens={tmp_path}")


@pytest.mark.parametrize(
    "word",
    ["data.unknown_below=0.1", "data.extra_characters=ab", "masking.no_mask_tokens=a"],
)
def test_keys_of_characters_are_refused_with_other_tokens(word):
    with pytest.raises(
        ConfigError, match=r"requires data\.tokens=characters \(now bytes\)"
    ):
        parse(["data.tokens=bytes", word])
    parse([word])


@pytest.mark.parametrize("tokens", ["bpe:300", "file"])
def test_a_missing_package_is_one_line(monkeypatch, tmp_path, tokens):
    tokens = str(saved(tmp_path, "gpt2", TEXT)) if tokens == "file" else tokens
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    with pytest.raises(CorpusError, match=r"pip install -r requirements-text\.txt"):
        parse([f"data.tokens={tokens}"])

    parse(["data.tokens=bytes"])


def test_the_path_of_a_tokenizer_is_made_absolute(monkeypatch, tmp_path):
    saved(tmp_path, "gpt2", TEXT)
    monkeypatch.chdir(tmp_path)

    assert parse(["data.tokens=gpt2.json"]).values["data.tokens"] == str(
        tmp_path / "gpt2.json"
    )


@pytest.fixture
def train(tmp_path, corpus_file):
    """Trains a small model with some keys; returns its run."""
    keys = {"data.corpus": corpus_file, "model.n_layers": 1, "training.evaluations": 1}
    keys |= {
        "training.stages": [{"until": 1.0, "seq_len": 32}],
        "training.max_steps": 2,
    }
    config = config_file(tmp_path, keys)

    def train(*words, base=("--config", config)):
        assert main([*base, f"logs={tmp_path / 'logs'}", *words]) == 0
        return find_run("last", tmp_path / "logs")

    return train


def resumed(run, *words, n_steps=4):
    return ["--resume", str(run.path), *words, f"training.max_steps={n_steps}"]


def test_a_resumed_run_needs_the_same_tokenizer(train, tmp_path, refusal):
    path = saved(tmp_path, "wordpiece", TEXT)
    run = train(f"data.tokens={path}")
    before = json.loads(path.read_text())
    other = json.loads(path.read_text())
    other["normalizer"]["lowercase"] = False

    path.write_text(json.dumps(other))

    assert "has changed since" in refusal(main, *resumed(run))

    path.write_text(json.dumps(before, indent=4))  # the same content
    assert main(resumed(run)) == 0

    path.unlink()
    assert "found no file" in refusal(main, *resumed(run, n_steps=6))


def test_a_resumed_run_keeps_its_bpe_without_a_cache(train, empty_cache):
    run = train("data.tokens=bpe:300")
    vocabulary = run.vocabulary()
    # As if another version of the package had learned other tokens since.
    (cached,) = (empty_cache / "tokenizers").iterdir()
    other = json.loads(cached.read_text())
    other["model"]["merges"].pop()
    cached.write_text(json.dumps(other))

    assert main(resumed(run)) == 0
    assert run.vocabulary() == vocabulary
    assert json.loads(cached.read_text()) == vocabulary["tokenizer"]


@pytest.mark.parametrize("tokens", ["characters", "bpe:300"])
def test_a_resumed_run_cannot_have_other_tokens(
    train, tmp_path, refusal, empty_cache, tokens
):
    run = train(f"data.tokens={tokens}")
    before = list(empty_cache.glob("tokenizers/*"))
    for other in ("bpe:500", saved(tmp_path, "wordpiece", TEXT)):
        line = refusal(main, *resumed(run, f"data.tokens={other}"))
        assert "a resumed run cannot change data.tokens" in line

    assert list(empty_cache.glob("tokenizers/*")) == before

    if tokens == "characters":  # whose weights are for characters too
        line = refusal(main, "--init-from", run.path, "data.tokens=bytes")
        assert "data.tokens=bytes differs" in line


@pytest.mark.parametrize("tokens", ["bytes", "bpe:300"])
def test_a_run_continues_another_one_with_its_tokens_only(
    train, tmp_path, refusal, tokens
):
    old = train(f"data.tokens={tokens}")
    other = "Zürich isn't far from 中文, said the cat.\n" * 300
    corpus = f"data.corpus={written(tmp_path / 'new.txt', other)}"
    base = ["--init-from", str(old.path)]

    assert train(corpus, base=base).vocabulary() == old.vocabulary()

    train(corpus, "initial_weights=", base=base)
    for start in (base, ["--config", old.config_path, f"initial_weights={old.path}"]):
        line = refusal(main, *start, corpus, "data.tokens=characters")
        assert "data.tokens=characters differs from the tokens of" in line

    # and is resumed after a move
    new = train(base=base)
    (tmp_path / "logs").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / new.path.relative_to(tmp_path / "logs")

    assert main(["--resume", str(moved), "training.max_steps=4"]) == 0
