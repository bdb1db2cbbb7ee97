"""`data.tokens` on the command line, and runs that are resumed or continued with their tokens."""

import json
import sys

import pytest

from configs.command_line.command import parse
from configs.keys import ConfigError
from data.text.sources import CorpusError
from experiment import main
from runs.find import find_run
from tests.conftest import SENTENCES, config_file
from tests.tokenizers import saved

TEXT = "".join(SENTENCES) * 20


NO_SIZES = ["256", "", "many", "8e3", "-300", "99999999999999999999", "٣٠٠"]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("", "data.tokens is empty"),
        ("byte", "found no file 'byte': did you mean bytes?"),
        ("words", "found no file 'words': give characters, bytes, bpe:N"),
        *(
            (path, "found no file")
            for path in ("/no/such/tokenizer.json", "~nobody_here/tokenizer.json", "x" * 5_000)
        ),
        *((f"bpe:{number}", "needs an integer N from 257 to 1,000,000") for number in NO_SIZES),
    ],
)
def test_wrong_tokens_are_one_line_before_any_work(refusal, tmp_path, tokens, message):
    assert message in refusal(main, f"data.tokens={tokens}", f"logs={tmp_path / 'logs'}", before="")
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"{}", b'"a"', b'{"model": {"vocab": {}}}', b"[" * 100_000]
)
def test_a_wrong_file_is_one_line_before_any_work(refusal, tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    assert "is not a tokenizer.json of Hugging Face" in refusal(
        main, f"data.tokens={path}", before=""
    )
    assert "Is a directory" in refusal(main, f"data.tokens={tmp_path}")


@pytest.mark.parametrize(
    "word", ["data.unknown_below=0.1", "data.extra_characters=ab", "masking.no_mask_tokens=a"]
)
def test_keys_of_characters_are_refused_with_other_tokens(word):
    with pytest.raises(ConfigError, match=r"requires data\.tokens=characters \(now bytes\)"):
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
    assert parse(["data.tokens=gpt2.json"]).values["data.tokens"] == str(tmp_path / "gpt2.json")


@pytest.fixture
def words(tmp_path, corpus_file):
    keys = {
        "data.corpus": corpus_file,
        "model.n_layers": 1,
        "model.ngrams": 0,
        "training.evaluations": 1,
    }
    stages = [{"until": 1.0, "seq_len": 32}]
    return ["--config", config_file(tmp_path, keys | {"training.stages": stages})]


def test_a_resumed_run_needs_the_same_tokenizer(words, tmp_path, refusal):
    path = saved(tmp_path, "wordpiece", TEXT)
    (tmp_path / "sentences.txt").write_text(TEXT * 10)
    keys = [f"data.tokens={path}", "training.max_steps=2"]
    assert main([*words, *keys]) == 0
    run = find_run("last", tmp_path / "logs")
    more = ["--resume", str(run.path), "training.max_steps=4"]
    before = path.read_text()
    content = json.loads(before)
    content["normalizer"]["lowercase"] = False
    path.write_text(json.dumps(content))
    assert "has changed since" in refusal(main, *more)
    path.write_text(json.dumps(json.loads(before), indent=4))  # the same content
    assert main(more) == 0
    path.unlink()
    assert "found no file" in refusal(main, *more[:-1], "training.max_steps=6")


def test_a_resumed_run_keeps_its_bpe_without_a_cache(words, tmp_path, empty_cache):
    assert main([*words, "data.tokens=bpe:300", "training.max_steps=2"]) == 0
    run = find_run("last", tmp_path / "logs")
    saved_before = run.vocabulary()
    # As if another version of the package had learned other tokens since.
    (cached,) = (empty_cache / "tokenizers").iterdir()
    other = json.loads(cached.read_text())
    other["model"]["merges"].pop()
    cached.write_text(json.dumps(other))
    assert main(["--resume", str(run.path), "training.max_steps=4"]) == 0
    assert run.vocabulary() == saved_before
    assert json.loads(cached.read_text()) == saved_before["tokenizer"]


@pytest.mark.parametrize("tokens", ["characters", "bpe:300"])
def test_a_resumed_run_cannot_have_other_tokens(words, tmp_path, refusal, empty_cache, tokens):
    assert main([*words, f"data.tokens={tokens}", "training.max_steps=2"]) == 0
    resumed = ["--resume", str(find_run("last", tmp_path / "logs").path)]
    before = list(empty_cache.glob("tokenizers/*"))
    for other in ("bpe:500", f"{saved(tmp_path, 'wordpiece', TEXT)}"):
        assert "a resumed run cannot change data.tokens" in refusal(
            main, *resumed, f"data.tokens={other}"
        )
    assert list(empty_cache.glob("tokenizers/*")) == before
    if tokens == "characters":  # whose weights are for characters too
        line = refusal(main, "--init-from", resumed[1], "data.tokens=bytes")
        assert "data.tokens=bytes differs" in line


def test_a_run_that_has_the_tokens_of_another_one_is_resumed_after_a_move(words, tmp_path):
    assert main([*words, "data.tokens=bpe:300", "training.max_steps=2"]) == 0
    first = find_run("last", tmp_path / "logs").path
    assert (
        main(["--init-from", str(first), f"logs={tmp_path / 'logs'}", "training.max_steps=2"]) == 0
    )
    second = find_run("last", tmp_path / "logs").path
    (tmp_path / "logs").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / second.relative_to(tmp_path / "logs")
    assert main(["--resume", str(moved), "training.max_steps=4"]) == 0


@pytest.mark.parametrize("tokens", ["bytes", "bpe:300"])
def test_a_run_continues_another_one_with_its_tokens_only(words, tmp_path, refusal, tokens):
    assert main([*words, f"data.tokens={tokens}", "training.max_steps=60"]) == 0
    old = find_run("last", tmp_path / "logs")
    (tmp_path / "new.txt").write_text(
        "Zürich isn't far from 中文, said the cat.\n" * 300, encoding="utf-8"
    )
    keys = [
        f"data.corpus={tmp_path / 'new.txt'}",
        f"logs={tmp_path / 'logs'}",
        "training.max_steps=2",
    ]
    assert main(["--init-from", str(old.path), *keys]) == 0
    new = find_run("last", tmp_path / "logs")
    assert new.vocabulary() == old.vocabulary()
    assert main(["--init-from", str(old.path), *keys, "initial_weights="]) == 0
    for line in (
        [*words, f"initial_weights={old.path}"],
        ["--init-from", old.path, *keys, "data.tokens=characters"],
    ):
        error = refusal(main, *line, "training.max_steps=2")
        assert "data.tokens=characters differs from the tokens of" in error
