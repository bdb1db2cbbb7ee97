"""The examples of the docs, in a file outside of the repository: they train, resume and predict."""

import re
import sys
from pathlib import Path

import pytest
import torch

import experiment
import export
import predict
from configs.command_line.program import run_main
from configs.keys import ConfigError
from configs.own_code import own_strategy, own_task
from configs.references import load
from data.tasks.task import REPORT
from runs.files import ROOT
from runs.find import find_run
from tests.conftest import config_file, one_line, written
from trained.load import load_trained
from trained.named_tasks import tasks_named

CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"(?:^|[ \"])([a-z_.]+)=(\[?my\.py:\w+\]?)", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def examples(name: str, *parts: str) -> str:
    """The Python examples of a page, or those that contain one of the parts, as one file."""
    blocks = CODE.findall(page(name))
    return "\n".join(b for b in blocks if not parts or any(part in b for part in parts))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of a user, in which the commands are called."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def train(folder: Path, keys: dict[str, str], *words: str) -> list[str]:
    config = config_file(folder, {"training.max_steps": 2, "training.evaluations": 1})
    assignments = [f"{key}={value}" for key, value in keys.items()]
    assert experiment.main(["--config", config, *assignments, *words]) == 0
    return ["--logs", str(folder / "logs")]


def test_the_examples_train_and_resume_and_predict_from_a_file_of_the_user(
    folder, text_file, capsys
):
    own = written(folder / "my.py", examples("docs/own_code.md"))
    keys = dict(REFERENCE.findall(page("docs/own_code.md")))
    batches = keys.pop("data.batches")  # they take the place of the strategy
    assert len(keys) == 7
    logs = train(folder, keys)
    assert "bits" in capsys.readouterr().out
    run = find_run("last", folder / "logs")
    assert run.config()["objective.loss"] == f"{own}:FocalLoss"
    (copy,) = run.code_path.glob("*/my.py")
    assert copy.read_text() == own.read_text()

    more = ["--resume", str(run.path)]
    assert experiment.main([*more, "training.max_steps=4"]) == 0
    assert predict.main([*logs, "last", "Document [MASK]"]) == 0
    assert str(copy) not in capsys.readouterr().err

    text = f"data.corpus={text_file}"
    train(folder, {"data.batches": batches}, text)
    lines = find_run("last", folder / "logs")
    assert experiment.main(["--resume", str(lines.path), "training.max_steps=4"]) == 0
    assert lines.metrics()[-1]["loss.train"] > 0

    # the user's file changes: the run uses its copy
    own.write_text(own.read_text().replace("(1 - torch.exp(-losses)) ** 2", "2"))
    for call in (
        lambda: experiment.main([*more, "training.max_steps=6"]),
        lambda: predict.main([*logs, str(run.path), "Document [MASK]"]),
    ):
        assert call() == 0
        assert (
            f"{own} has changed since the run began: using the copy {copy}"
            in capsys.readouterr().err
        )
    own.unlink()
    (folder / "logs").rename(folder / "moved")
    initial = folder / "moved" / run.path.relative_to(folder / "logs")
    words = [f"logs={folder / 'new'}", "training.max_steps=2"]
    assert experiment.main(["--init-from", str(initial), *words]) == 0
    assert find_run("last", folder / "new").metrics()[-1]["step"] == 2


def test_the_examples_of_the_readme_train(folder, text_file):
    written(folder / "my.py", examples("README.md"))
    train(folder, dict(REFERENCE.findall(page("README.md"))), f"data.corpus={text_file}")


@pytest.mark.parametrize("name", ["vowels", "least_selected"])
def test_the_strategies_of_the_docs_are_segmenters(folder, sentences, name):
    """The weights of one change with what it observes, and are saved and restored."""
    own = written(folder / "my.py", examples("docs/masking.md", "def vowels", "def least_selected"))
    strategy = own_strategy(load("masking.strategy", f"{own}:{name}"))
    segmenter = strategy(sentences)
    resumed = strategy(sentences)
    offsets = torch.arange(64).view(2, 32)
    generator = torch.Generator()
    units, before = segmenter(offsets, generator, 0.0)
    assert units.shape == before.shape == offsets.shape
    segmenter.observe(offsets[0], torch.ones(32))
    resumed.load_state_dict(segmenter.state_dict())
    after = segmenter(offsets, generator, 0.0)[1]
    assert torch.equal(after, before) == (name == "vowels")
    assert torch.equal(after, resumed(offsets, generator, 0.0)[1])


def test_the_tasks_of_the_docs_are_tasks(folder, shakespeare):
    own = written(folder / "my.py", examples("docs/tasks.md", "def ending"))
    task = own_task(f"{own}:ending", REPORT)
    assert task.labels == ["!", ".", "?"]
    assert len(task.pool) == 1_000
    assert len(task.test) > 100


def test_a_task_of_the_user_is_chosen(folder, text_file):
    written(folder / "my.py", examples("docs/own_code.md", "def ending"))
    train(folder, {"data.corpus": str(text_file)})
    trained = load_trained("last", folder / "logs")
    ((name, task),) = tasks_named("my.py:ending", trained)
    assert name.startswith("ending ")
    assert task.labels == ["!", ".", "?"]


MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(30, 30)

    def forward(self, inputs, positions):
        return self.table(inputs)

def model(c):
    return Model()
"""
SOURCE = """
class Source:
    def draw(self, batch_size, seq_len, masking_prob, progress): return 5
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

def make(c): return Source()
"""
WRONG = {
    "no file": ("", "model.architecture=nowhere.py:model", "cannot read nowhere.py (No such file)"),
    "no name": ("def model(c): pass", "model.architecture=my.py:modle", "has no modle: did you mean model?"),
    "a number": ("model = 5", "model.architecture=my.py:model", "neither a function nor a class"),
    "syntax": ("\n\ndef model(:", "model.architecture=my.py:model", "my.py, line 3: SyntaxError"),
    "an import": ("import nothing_of_this_name", "callbacks=[my.py:C]", "my.py, line 1: ModuleNotFoundError"),
    "arguments": ("def model(): pass", "model.architecture=my.py:model", "must take 1 argument"),
    "an error": ("def model(c):\n    return 1 / 0", "model.architecture=my.py:model", "my.py, line 2: ZeroDivision"),
    "no module": ("def model(c): return 3", "model.architecture=my.py:model", "must return a torch.nn.Module, not int"),
    "a shape": (MODEL, "model.architecture=my.py:model", "must return logits [3, "),
    "no optimizer": ("def make(c): return [3]", "training.optimizer=my.py:make", "torch.optim.Optimizer or a list"),
    "no segmenter": ("def make(text): return 3", "masking.strategy=my.py:make", "must return a Segmenter, not int"),
    "one loss": ("def loss(x, y): return x.mean()", "objective.loss=my.py:loss", "it must return losses [5], not []"),
    "no gradient": ("def loss(x, y): return y * 1.0", "objective.loss=my.py:loss", "its losses have no gradient"),
    "a loss's arguments": ("def loss(x): return x", "objective.loss=my.py:loss", "must take 2 arguments"),
    "no tokens": ("class T:\n    def encode(self, text): pass", "data.tokens=my.py:T", "it must have a list `tokens`"),
    "no documents": ("def text(): return 5", "data.corpus=my.py:text", "it must yield strings"),
    "a document": ("def text(): yield 5", "data.corpus=my.py:text", "document 1 is not a string"),
    "no source": ("def make(c): return 3", "data.batches=my.py:make", "'int' object has no attribute 'draw'"),
    "no batch": (SOURCE, "data.batches=my.py:make", "must return a Batch: it must return a data.batch.Batch"),
    "no class": ("def hook(trainer): pass", "callbacks=[my.py:hook]", "it must be a class"),
    "no hook": ("class C:\n    def evaluted(self): pass", "callbacks=[my.py:C]", "it has none of the hooks begin"),
    "a hook's arguments": ("class C:\n    def stepped(self): pass", "callbacks=[my.py:C]", "stepped must take 3"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "word", "message"), WRONG.values(), ids=WRONG)
def test_wrong_code_is_one_line_before_training(folder, text_file, refusal, content, word, message):
    written(folder / "my.py", content)
    config = config_file(folder, {"data.corpus": text_file, "training.max_steps": 1})
    line = refusal(experiment.main, "--config", config, word)
    assert word.partition("=")[0] in line
    assert message in line
    assert not (folder / "logs").exists()


def test_a_file_imports_its_neighbors_and_the_run_keeps_them(folder, text_file, capsys):
    written(folder / "words.py", "WORD = 'before'\n")
    content = "import words\nclass Says:\n    def end(self, trainer):\n        print(words.WORD)\n"
    own = written(folder / "my.py", content)
    train(folder, {"callbacks": "[my.py:Says]", "data.corpus": str(text_file)})
    run = find_run("last", folder / "logs")
    assert set(run.code()) == {str(own), str(folder / "words.py")}
    written(folder / "words.py", "WORD = 'after'\n")
    assert experiment.main(["--resume", str(run.path), "training.max_steps=4"]) == 0
    assert capsys.readouterr().out.split().count("before") == 2
    assert run.config()["callbacks"] == [f"{own}:Says"]


def test_an_error_in_training_names_the_line_of_the_user(folder, text_file, monkeypatch, capsys):
    written(folder / "my.py", "class Fails:\n    def end(self, trainer):\n        1 / 0\n")
    config = config_file(folder, {"data.corpus": text_file, "training.max_steps": 1})
    words = ["experiment.py", "--config", config, "callbacks=[my.py:Fails]"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # `run_main` replaces it
    with pytest.raises(SystemExit, match=r"^1$"):
        run_main(experiment.main)
    line = "experiment.py: stopped: my.py, line 3: ZeroDivisionError: division by zero\n"
    assert capsys.readouterr().err == line


HUGGING_FACE = """
from torch import nn
from transformers import BertConfig, BertForMaskedLM

class Model(nn.Module):
    def __init__(self, n_tokens):
        super().__init__()
        sizes = dict.fromkeys(("hidden_size", "intermediate_size"), 16)
        config = BertConfig(vocab_size=n_tokens, num_hidden_layers=1, num_attention_heads=2, **sizes)
        self.bert = BertForMaskedLM(config)

    def forward(self, inputs, positions=None, attention_mask=None):
        logits = self.bert(inputs, attention_mask=attention_mask).logits.flatten(0, 1)
        return logits if positions is None else logits[positions]

    def hugging_face(self):
        return self.bert

def model(c):
    return Model(c.n_tokens)
"""


def test_a_model_that_has_an_export_is_exported(folder, text_file, printed):
    written(folder / "my.py", HUGGING_FACE)
    keys = {"model.architecture": "my.py:model", "data.corpus": str(text_file)}
    logs = train(folder, keys, "training.optimizer=adamw")
    printed(export.main, *logs, "last", "--to", "huggingface", folder / "exported")
    assert (folder / "exported" / "model.safetensors").exists()


def test_a_reference_that_is_no_file_name_stays_a_path():
    with one_line(ConfigError, "found no file"):
        experiment.parse(["data.tokens=C:\\my.py"])
