"""`--init-from hf:FOLDER`: checkpoints of transformers are trained, measured and exported."""

import json
import re
import shutil

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

import evaluate
import experiment
import export
import finetune
import predict
from configs.experiment import configs_of
from configs.hugging_face import folder_of
from configs.keys import ConfigError
from data.batch import IGNORED_LABEL
from runs.files import ROOT
from tests.checkpoints import CLASSES, N_UNUSED, OTHERS, checkpoint, of_bert
from tests.conftest import check_resumes, dotted, one_line, only_run, slow, written
from tests.trained.conftest import csv_of_animals
from trained.answers import answers
from trained.load import load_trained

HEADLESS = "bert without head"
FAST = ["bert", "modernbert", "xlm-roberta"]
SLOW = [name for name in CLASSES if name not in FAST]
SLOW_WITH_A_HEAD = [name for name in SLOW if name != HEADLESS]
OF_TRANSFORMERS = {
    "[PAD]": "pad_token",
    "[MASK]": "mask_token",
    "[UNK]": "unk_token",
    "[CLS]": "cls_token",
    "[SEP]": "sep_token",
}
KEYS = {
    "training.max_steps": 0,
    "training.evaluations": 1,
    "training.compile": "false",
    "training.chars_per_step": 512,
    "training.stages": "[{until: 1.0, seq_len: 32}]",
    "sample.every_evaluations": 0,
    "device": "cpu",
}


@pytest.fixture(scope="module", params=CLASSES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def lines_file(tmp_path_factory, sentences):
    """The sentences as documents, which are packed into windows."""
    lines = [f"{line} {i}\n" for i, line in enumerate(sentences.splitlines())]
    return written(tmp_path_factory.mktemp("text") / "lines.txt", "".join(lines))


@pytest.fixture(scope="module")
def folder(name, tmp_path_factory, lines_file):
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    return checkpoint(folder, name, lines_file.read_text())


@pytest.fixture
def start(tmp_path, text_file, printed):
    """Starts a run with a checkpoint; returns the trained run and what was printed."""

    def start(folder, **keys):
        logs = tmp_path / f"logs{len(list(tmp_path.glob('logs*')))}"
        values = KEYS | dotted({"data__corpus": text_file, "logs": logs, **keys})
        words = [f"{key}={value}" for key, value in values.items()]
        output = printed(experiment.main, "--init-from", f"hf:{folder}", *words)
        return load_trained(str(only_run(logs).path)), output

    return start


def opened(folder):
    auto = transformers.AutoModelForMaskedLM
    return auto.from_pretrained(folder, dtype=torch.float32).eval()


def rows_of(vocabulary, tokenizer):
    """The ids of transformers' tokenizer in the order of a vocabulary."""
    rows = []
    for token in [*vocabulary.ordinary, *vocabulary.special_tokens]:
        if token in OF_TRANSFORMERS:
            token = getattr(tokenizer, OF_TRANSFORMERS[token])
        rows.append(tokenizer.convert_tokens_to_ids(token))
    return torch.tensor(rows)


def documents_of(validation):
    """The documents of each window, with their masks."""
    numbers = validation.attention_mask
    if numbers is None:
        numbers = torch.ones_like(validation.windows)
    for row, window in enumerate(validation.windows):
        for number in range(1, int(numbers[row].max()) + 1):
            is_own = numbers[row] == number
            yield window[is_own], validation.masked[row][is_own]


def loss_of_transformers(folder, trained):
    """The loss of the validation protocol, as transformers computes it for each document alone."""
    model = opened(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = rows_of(trained.vocabulary, tokenizer)
    losses = []
    for tokens, masked in documents_of(trained.data().validation_set):
        labels = rows[tokens]
        inputs = labels.masked_fill(masked, tokenizer.mask_token_id).tolist()
        around = [tokenizer.cls_token_id, *inputs]
        if labels[-1] != tokenizer.sep_token_id:
            around.append(tokenizer.sep_token_id)
        with torch.no_grad():
            logits = model(torch.tensor([around])).logits[0, 1 : len(inputs) + 1]
        of_masked = logits[masked].double()
        losses.append(cross_entropy(of_masked, labels[masked], reduction="none"))
    return torch.cat(losses).mean().item()


@pytest.mark.parametrize(
    "name", [*FAST, *slow(*SLOW_WITH_A_HEAD, *OTHERS)], indirect=True
)
@pytest.mark.parametrize("documents", ["auto", "lines"])
def test_an_unchanged_checkpoint_has_the_loss_of_transformers(
    folder, start, lines_file, documents
):
    """For a text in windows, and for packed documents."""
    trained, _ = start(folder, data__corpus=lines_file, data__documents=documents)
    (row,) = trained.run.metrics()

    expected = loss_of_transformers(folder, trained)
    assert row["loss.valid"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", [*FAST, *slow(*SLOW)], indirect=True)
def test_a_checkpoint_comes_back_with_the_same_bits(folder, name, start, tmp_path):
    written(folder / "modules.json", "[]")  # of sentence-transformers
    trained, _ = start(folder)
    back = tmp_path / "back"
    words = [str(trained.run.path), "--to", "huggingface", str(back)]

    assert export.main(words) == 0

    before = opened(folder).state_dict()
    after = opened(back).state_dict()
    assert before.keys() == after.keys()
    if name == HEADLESS:
        before = {key: value for key, value in before.items() if "cls." not in key}
    for key in before:
        assert torch.equal(before[key], after[key]), key
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(each) for each in (folder, back)
    ]
    ids = [tokenizer("the cat sat")["input_ids"] for tokenizer in tokenizers]
    assert ids[0] == ids[1]
    names = {path.name for path in back.iterdir()}
    assert not names & {"modules.json", "model.safetensors.index.json"}


@pytest.mark.parametrize("name", [*FAST, *slow(*SLOW)], indirect=True)
def test_a_trained_checkpoint_is_exported_with_its_loss(folder, start, tmp_path):
    """The run is complete without the checkpoint that it began with."""
    keys = {"training__max_steps": 3, "training__learning_rate": 1e-2}
    trained, _ = start(folder, **keys)
    folder.rename(tmp_path / "gone")
    back = tmp_path / "back"

    try:
        assert (
            export.main([str(trained.run.path), "--to", "huggingface", str(back)]) == 0
        )
        assert evaluate.main([str(trained.run.path)]) == 0
    finally:
        (tmp_path / "gone").rename(folder)

    (row,) = trained.run.metrics()
    expected = loss_of_transformers(back, trained)
    assert row["loss.valid"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["bert"], indirect=True)
def test_runs_with_other_seeds_are_one_group(folder, start, printed):
    """Although each has a copy of the tokenizer."""
    runs = [
        start(folder, training__max_steps=1, seed=seed)[0].run.path for seed in (1, 2)
    ]

    assert "(2 seeds)" in printed(evaluate.main, *runs)


@pytest.mark.parametrize("name", [*FAST, *slow(*SLOW_WITH_A_HEAD)], indirect=True)
def test_ngrams_start_with_the_loss_of_the_checkpoint(
    folder, start, lines_file, refusal, tmp_path
):
    """They are learned, and no class of transformers has them."""
    keys = {"model__ngrams": 4, "model__ngram_rows": 4_096, "data__documents": "lines"}
    trained, _ = start(folder, data__corpus=lines_file, **keys)
    (row,) = trained.run.metrics()

    expected = loss_of_transformers(folder, trained)
    assert row["loss.valid"] == pytest.approx(expected, abs=1e-5)

    trained, _ = start(folder, training__max_steps=2, model__ngrams=2)
    assert trained.encoder.ngrams.table.weight.any()

    path = tmp_path / "back"
    line = refusal(export.main, trained.run.path, "--to", "huggingface", path)
    assert "model.ngrams" in line


def test_a_new_head_is_said_and_learns(name, folder, start):
    trained, output = start(folder, training__max_steps=30, training__evaluations=2)

    assert ("has no head" in output) == (name == HEADLESS)
    first, last = [row["loss.valid"] for row in trained.run.metrics()]
    assert last < first


SHAPE = {
    "model__architecture": "huggingface",
    "model__n_layers": 2,
    "model__d_ff": 48,
    "training__optimizer": "adamw",
    "training__max_steps": 6,
}


@pytest.mark.parametrize("name", ["bert"], indirect=True)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_resumes_bit_for_bit(folder, train, lines_file, optimizer):
    keys = {
        "data__tokens": folder,
        "data__corpus": lines_file,
        "data__documents": "lines",
    }
    keys |= {
        "model__ngrams": 2,
        "model__dropout": 0.1,
        "training__optimizer": optimizer,
    }
    check_resumes(train, 3, **SHAPE | keys)


@pytest.mark.parametrize("name", ["bert"], indirect=True)
def test_a_run_resumes_without_the_checkpoint(folder, start, tmp_path):
    trained, _ = start(folder, training__max_steps=2)
    folder.rename(tmp_path / "gone")
    try:
        words = ["--resume", str(trained.run.path), "training.max_steps=3"]
        assert experiment.main(words) == 0
    finally:
        (tmp_path / "gone").rename(folder)

    assert trained.run.config()["data.tokens"] == str(folder)  # as --config needs it


@pytest.mark.parametrize("name", ["bert"], indirect=True)
def test_a_run_starts_with_the_weights_of_one_with_a_checkpoint(
    folder, start, tmp_path
):
    keys = {"training__max_steps": 2, "training__learning_rate": 1e-2}
    trained, _ = start(folder, **keys)
    logs = tmp_path / "next"
    words = [f"{key}={value}" for key, value in (KEYS | {"logs": logs}).items()]

    assert experiment.main(["--init-from", str(trained.run.path), *words]) == 0

    (row,) = only_run(logs).metrics()
    before = trained.run.metrics()[-1]
    assert row["loss.valid"] == pytest.approx(before["loss.valid"], abs=1e-6)


@pytest.mark.parametrize("name", ["bert"], indirect=True)
@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("model.d_model=64", "has 32"),
        ("model.n_layers=3", "has 2"),
        ("data.tokens=bytes", "data.tokens"),
        ("objective.nsp=true", "objective.nsp"),
        ("training.stages=[{until: 1.0, seq_len: 512}]", "at most 298 tokens"),
    ],
)
def test_keys_that_the_checkpoint_decides_are_refused(
    folder, refusal, key, reason, text_file, tmp_path
):
    words = [f"data.corpus={text_file}", f"logs={tmp_path}", key]
    line = refusal(experiment.main, "--init-from", f"hf:{folder}", *words)

    assert reason in line


def test_a_folder_without_a_checkpoint_is_refused(refusal, tmp_path):
    line = refusal(experiment.main, "--init-from", f"hf:{tmp_path}")

    assert "config.json" in line


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        (
            "GPT2LMHeadModel",
            {"n_embd": 24},
            "gpt2 is not a model of AutoModelForMaskedLM",
        ),
        ("FNetForMaskedLM", {"hidden_size": 24}, "no attribute 'num_attention_heads'"),
        ("DebertaV2ForMaskedLM", {"hidden_size": 24}, "DebertaV2ForMaskedLM cannot be"),
    ],
)
def test_a_class_that_does_not_fit_is_one_line(
    kind, settings, reason, refusal, text_file, tmp_path
):
    tokenizer = of_bert(text_file.read_text())
    tokenizer.save_pretrained(tmp_path)
    auto = getattr(transformers, kind)
    config = auto.config_class(vocab_size=len(tokenizer), **settings)
    config.num_hidden_layers = 1
    auto(config).save_pretrained(tmp_path)
    words = [f"data.corpus={text_file}", f"logs={tmp_path}", "device=cpu"]

    assert reason in refusal(experiment.main, "--init-from", f"hf:{tmp_path}", *words)


@pytest.mark.parametrize("name", ["bert"], indirect=True)
def test_tokens_without_rows_are_one_line(folder, refusal, text_file, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(copy)
    tokenizer.add_tokens([f"new{i}" for i in range(N_UNUSED + 1)])
    tokenizer.save_pretrained(copy)
    words = [f"data.corpus={text_file}", f"logs={tmp_path}"]

    line = refusal(experiment.main, "--init-from", f"hf:{copy}", *words)

    assert "resize_token_embeddings" in line


@pytest.mark.parametrize("name", ["bert", "roberta", "camembert"], indirect=True)
def test_strategies_mask_whole_words(folder, start, lines_file):
    """Of word pieces, byte-level tokens and SentencePiece's."""
    keys = {"data__corpus": lines_file, "data__documents": "lines"}
    trained, _ = start(folder, masking__strategy="whole_word", **keys)
    values = trained.values | {"masking.randomize_prob": 0, "masking.no_change_prob": 0}
    configs = configs_of(values)
    batch = configs.source.draw(16, 32, 0.3, 0.0)
    vocabulary = trained.vocabulary
    labels = torch.full_like(batch.inputs, IGNORED_LABEL)
    labels.view(-1)[batch.positions] = batch.labels
    is_masked = labels != IGNORED_LABEL
    tokens = torch.where(is_masked, labels, batch.inputs)

    n_words = 0
    for row, numbers, masked in zip(
        tokens, batch.attention_mask, is_masked, strict=True
    ):
        for number in range(1, int(numbers.max()) + 1):
            is_own = numbers == number
            ids = row[is_own]
            text, char_of_token = vocabulary.text_of(ids)
            of_words = {}
            for i, char in enumerate(char_of_token.tolist()):
                word = len(text[:char].split(" ")) if text[char].isalnum() else -i
                of_words.setdefault(word, []).append(bool(masked[is_own][i]))
            n_words += sum(len(each) > 1 and all(each) for each in of_words.values())
            parts = [each for each in of_words.values() if len({*each}) > 1]
            n_cut = len(parts)
            assert n_cut <= 1  # the last of a window is masked in part
    assert n_words > 5


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("name", [*FAST, *slow(*SLOW, *OTHERS)], indirect=True)
def test_a_run_becomes_a_classifier(folder, start, tmp_path, printed, refusal):
    """Which is complete without the run and the checkpoint."""
    csv_file = csv_of_animals(tmp_path / "animals.csv")
    trained, _ = start(folder)
    saved = tmp_path / "classifier"
    words = ("--task", csv_file, "--labels", 16, "--draws", 1, "--save", saved)

    printed(finetune.main, trained.run.path, *words)
    trained.run.path.rename(tmp_path / "gone")

    assert {"cat", "dog"} & set(printed(predict.main, saved, "the cat sat").split())
    line = refusal(export.main, saved, "--to", "huggingface", tmp_path / "exported")
    assert "export the run" in line


@pytest.mark.parametrize(
    "name", ["bert", "roberta", "modernbert", "camembert"], indirect=True
)
def test_blanks_are_filled_as_by_transformers(folder, start, tmp_path, printed):
    """The space before a blank belongs to the token in it."""
    trained, _ = start(folder, training__max_steps=20)
    back = tmp_path / "back"
    export.main([str(trained.run.path), "--to", "huggingface", str(back)])
    pipeline = transformers.pipeline("fill-mask", str(back), top_k=20)
    text = "the cat [MASK] on the mat."
    guesses = pipeline(text.replace("[MASK]", pipeline.tokenizer.mask_token))
    special = pipeline.tokenizer.all_special_ids
    expected = [each for each in guesses if each["token"] not in special][:5]

    (line,) = answers(trained, [json.dumps({"text": text, "top": 5}).encode()])
    filled = printed(predict.main, trained.run.path, text)

    names, shares = zip(*json.loads(line)["candidates"][0], strict=True)
    tokens = [each["token_str"].removeprefix("##").strip() for each in expected]
    assert [each.strip() for each in names] == tokens
    assert shares == pytest.approx([each["score"] for each in expected], rel=0.1)
    assert filled == f"the cat {tokens[0]} on the mat.\n"
    example = re.search(r'model\("(.*)"\)', (back / "README.md").read_text())[1]
    assert pipeline(example)


@pytest.mark.parametrize("name", ["bert", "roberta", "camembert"], indirect=True)
def test_pieces_of_the_text_are_added(folder, start, tmp_path, lines_file):
    """The rows of the others stay, and the export encodes as the run does."""
    letters = set(lines_file.read_text())
    found = re.findall("[a-z]+", (ROOT / "docs/reading.md").read_text())
    words = [word for word in found if letters.issuperset(word)]
    corpus = written(tmp_path / "words.txt", " ".join(words * 3))
    plain, _ = start(folder, data__corpus=corpus)
    shutil.copytree(folder, tmp_path / "model")
    source = written(tmp_path / "model" / "vocab.txt", "[PAD]").parent
    trained, output = start(source, data__corpus=corpus, data__extend_vocabulary=99)
    old, new = plain.vocabulary, trained.vocabulary
    text = corpus.read_text()[:5_000]
    added = [token for token in new.ordinary if token not in old.ordinary]
    added = [token for token in added if not token.startswith("[row")]

    assert new.n_tokens == old.n_tokens + 99 == old.n_tokens + len(added)
    assert new.decode(new.encode(text)) == old.decode(old.encode(text))
    assert len(new.encode(text)) < 0.8 * len(old.encode(text))
    assert "loss per character" in output

    table = trained.encoder.embedding.weight
    for token, before in zip(
        old.ordinary, plain.encoder.embedding.weight, strict=False
    ):
        assert torch.equal(table[new.id_of(token)], before)
    for token in added:
        surface = new.surfaces[new.id_of(token)].decode().strip()
        assert surface in corpus.read_text()

    back = tmp_path / "back"
    assert export.main([str(trained.run.path), "--to", "huggingface", str(back)]) == 0
    assert not (back / "vocab.txt").exists()  # which lacks the pieces
    tokenizer = transformers.AutoTokenizer.from_pretrained(back)
    rows = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert torch.equal(rows_of(new, tokenizer)[new.encode(text)], rows)
    (row,) = trained.run.metrics()
    expected = loss_of_transformers(back, trained)
    assert row["loss.valid"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["bert"], indirect=True)
def test_a_run_with_added_pieces_resumes(folder, start):
    trained, _ = start(folder, data__extend_vocabulary=20, training__max_steps=1)
    words = ["--resume", str(trained.run.path), "training.max_steps=2"]

    assert experiment.main(words) == 0
    assert trained.run.config()["data.extend_vocabulary"] == 20


@pytest.mark.parametrize("name", ["bert"], indirect=True)
def test_a_name_on_the_hub_is_found_in_its_cache(folder, tmp_path, monkeypatch):
    cached = tmp_path / "models--someone--model"
    shutil.copytree(folder, cached / "snapshots/abc")
    (cached / "refs").mkdir()
    written(cached / "refs/main", "abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    assert folder_of("someone/model") == cached / "snapshots/abc"
    with one_line(ConfigError, "hf:someone/other: no folder, and not on the Hub"):
        folder_of("someone/other")


@pytest.mark.parametrize("name", ["bert"], indirect=True)
def test_code_of_a_checkpoint_runs_only_if_the_user_trusts_it(
    folder, tmp_path, refusal
):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    written(copy / "config.json", json.dumps(config))
    written(copy / "own.py", f"open({str(tmp_path / 'ran')!r}, 'w')")

    line = refusal(experiment.main, "--init-from", f"hf:{copy}")

    assert "model.trust_remote_code=true" in line
    assert not (tmp_path / "ran").exists()
    refusal(
        experiment.main, "--init-from", f"hf:{copy}", "model.trust_remote_code=true"
    )
    assert (tmp_path / "ran").exists()
