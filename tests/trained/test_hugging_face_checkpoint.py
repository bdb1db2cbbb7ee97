"""`--init-from hf:FOLDER`: checkpoints of transformers are trained, measured and exported."""

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

import evaluate
import experiment
import export
from tests.checkpoints import CLASSES, checkpoint
from tests.conftest import dotted, only_run, written
from trained.load import load_trained

HEADLESS = "bert without head"
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
def folder(name, tmp_path_factory, sentences):
    return checkpoint(tmp_path_factory.mktemp("checkpoint") / "model", name, sentences)


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


@pytest.fixture
def lines_file(tmp_path, sentences):
    """The sentences as documents, which are packed into windows."""
    lines = [f"{line} {i}\n" for i, line in enumerate(sentences.splitlines())]
    return written(tmp_path / "lines.txt", "".join(lines))


def opened(folder):
    return transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()


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


@pytest.mark.parametrize("name", set(CLASSES) - {HEADLESS}, indirect=True)
@pytest.mark.parametrize("documents", ["auto", "lines"])
def test_an_unchanged_checkpoint_has_the_loss_of_transformers(
    folder, start, lines_file, documents
):
    """For a text in windows, and for packed documents."""
    trained, _ = start(folder, data__corpus=lines_file, data__documents=documents)
    (row,) = trained.run.metrics()

    expected = loss_of_transformers(folder, trained)
    assert row["loss.valid"] == pytest.approx(expected, abs=1e-5)


def test_a_checkpoint_comes_back_with_the_same_bits(folder, name, start, tmp_path):
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
