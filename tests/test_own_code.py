"""The examples of the docs, in a file outside of the repository: they train, resume and predict."""

import hashlib
import re
import sys

import pytest
import torch

import experiment
import export
import predict
from configs.command_line.program import run_main
from configs.keys import ConfigError
from configs.own_code import own_strategy, own_task
from configs.references import is_of_user, load
from data.tasks.task import REPORT
from runs.files import ROOT
from runs.find import find_run
from tests.conftest import config_file, one_line, only_run, written
from trained.load import load_trained
from trained.named_tasks import tasks_named

CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"(?:^|[ \"])([a-z_.]+)=(\[?my\.py:\w+\]?)", re.MULTILINE)
SAYS = """
import words

class Says:
    def end(self, trainer):
        print(words.SAID)
"""


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def examples(name, *parts):
    """The Python examples of a page, or those that contain one of the parts, as one file."""
    blocks = CODE.findall(page(name))
    return "\n".join(b for b in blocks if not parts or any(part in b for part in parts))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a user, in which the commands are called."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def train(folder, *words):
    config = config_file(folder, {"training.max_steps": 2, "training.evaluations": 1})
    assert experiment.main(["--config", config, *words]) == 0
    return find_run("last", folder / "logs")


def test_the_examples_train_and_resume_and_predict_from_a_file_of_the_user(
    folder, capsys
):
    neighbor = written(folder / "words.py", "SAID = 'before'\n")
    own = written(folder / "my.py", examples("docs/own_code.md") + SAYS)
    keys = dict(REFERENCE.findall(page("docs/own_code.md")))
    assert keys.pop("data.batches")  # they take the place of the strategy
    assert len(keys) == 7
    keys["data.windows"] = "anywhere"  # the model takes no attention mask
    keys["callbacks"] = "[my.py:MyCallback, my.py:Says]"
    (folder / "disk").mkdir()
    (folder / "logs").symlink_to("disk")

    run = train(folder, *(f"{key}={value}" for key, value in keys.items()))
    assert {"bits", "before"} <= set(capsys.readouterr().out.split())
    assert run.config()["objective.loss"] == f"{own}:FocalLoss"
    assert set(run.code()) == {str(own), str(neighbor)}
    (copy,) = run.code_path.glob("*/my.py")
    assert copy.read_text() == own.read_text()

    logs = ["--logs", str(folder / "logs")]
    assert predict.main([*logs, "last", "Document [MASK]"]) == 0
    assert "has changed" not in capsys.readouterr().err
    ((name, task),) = tasks_named("my.py:ending", load_trained("last", folder / "logs"))
    assert name.startswith("ending ")
    assert task.labels == ["!", ".", "?"]

    # a file changes: the run uses its copies
    written(neighbor, "SAID = 'after'\n")
    words = [f"logs={folder / 'logs'}", "training.max_steps=4"]
    assert experiment.main(["--resume", "last", *words]) == 0
    output = capsys.readouterr()
    assert "before" in output.out.split()
    assert f"{neighbor} has changed since the run began" in output.err
    assert run.config()["objective.loss"] == f"{own}:FocalLoss"
    assert run.corpus()["name"] == f"{own}:documents"

    # and they move with it
    own.unlink()
    (folder / "logs").rename(folder / "moved")
    initial = folder / "moved" / run.path.relative_to(folder / "logs")
    words = [f"logs={folder / 'new'}", "training.max_steps=2"]
    assert experiment.main(["--init-from", str(initial), *words]) == 0
    output = capsys.readouterr()
    assert "before" in output.out.split()
    assert f"{own} is missing since the run began" in output.err
    assert find_run("last", folder / "new").metrics()[-1]["step"] == 2


def test_a_callback_that_is_added_on_resume_is_kept(folder, text_file):
    own = written(folder / "my.py", SAYS)
    neighbor = written(folder / "words.py", "SAID = 'before'\n")
    run = train(folder, "callbacks=[my.py:Says]", f"data.corpus={text_file}")
    earlier = run.code()

    (folder / "more").mkdir()
    more = written(
        folder / "more" / "more.py", "class More:\n    def end(self, trainer): pass\n"
    )
    words = ["callbacks=[my.py:Says, more/more.py:More]", "training.max_steps=4"]
    assert experiment.main(["--resume", str(run.path), *words]) == 0

    copies = run.code()
    assert earlier.keys() == {str(own), str(neighbor)}
    assert copies.items() > earlier.items()
    assert (run.code_path / copies[str(more)]["copy"]).read_bytes() == more.read_bytes()
    digest = hashlib.sha256(more.read_bytes()).hexdigest()
    assert copies[str(more)]["sha256"] == digest


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


def test_a_source_of_batches_resumes_and_a_model_that_has_an_export_is_exported(
    folder, text_file, printed
):
    written(
        folder / "my.py", examples("docs/own_code.md", "class Lines") + HUGGING_FACE
    )
    keys = ["data.batches=my.py:lines", "model.architecture=my.py:model"]
    run = train(folder, *keys, "training.optimizer=adamw", f"data.corpus={text_file}")
    assert experiment.main(["--resume", str(run.path), "training.max_steps=4"]) == 0
    assert run.metrics()[-1]["loss.train"] > 0

    exported = folder / "exported"
    printed(export.main, run.path, "--to", "huggingface", exported)
    assert (exported / "model.safetensors").exists()


def test_a_source_of_batches_needs_no_windows_of_the_text(folder, sentences):
    written(folder / "my.py", examples("docs/own_code.md", "class Lines"))
    short = written(folder / "short.txt", sentences[:3_000])
    stages = "training.stages=[{until: 1, seq_len: 4096}]"
    keys = ["data.batches=my.py:lines", f"data.corpus={short}", stages]
    train(folder, *keys, "training.chars_per_step=4096")


def test_the_examples_of_the_readme_train_with_strategies_of_the_docs(
    folder, text_file
):
    strategies = examples("docs/masking.md", "def vowels", "def least_selected")
    written(folder / "my.py", examples("README.md") + strategies)
    keys = [f"{key}={value}" for key, value in REFERENCE.findall(page("README.md"))]
    mixture = "masking.mixture=[{until: 1, my.py:vowels: 1, my.py:least_selected: 1}]"
    train(
        folder, *keys, "masking.strategy=mixture", mixture, f"data.corpus={text_file}"
    )


def test_the_strategy_of_the_docs_that_learns_is_saved_and_restored(folder, sentences):
    own = written(folder / "my.py", examples("docs/masking.md", "def least_selected"))
    strategy = own_strategy(load("masking.strategy", f"{own}:least_selected"))
    segmenter = strategy(sentences)
    resumed = strategy(sentences)
    offsets = torch.arange(64).view(2, 32)
    generator = torch.Generator()

    _, before = segmenter(offsets, generator, 0.0)
    segmenter.observe(offsets[0], torch.ones(32))
    _, after = segmenter(offsets, generator, 0.0)
    assert not torch.equal(after, before)

    resumed.load_state_dict(segmenter.state_dict())
    assert torch.equal(after, resumed(offsets, generator, 0.0)[1])


def test_the_tasks_of_the_docs_are_tasks(folder, shakespeare):
    own = written(folder / "my.py", examples("docs/tasks.md", "def ending"))
    task = own_task(f"{own}:ending", REPORT)
    assert task.labels == ["!", ".", "?"]
    assert len(task.pool) == 1_000
    assert len(task.test) > 100


MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(30, 30)

    def forward(self, inputs, positions):
        return self.table(inputs)

def own(c):
    return Model()
"""
SHORT = """
import torch

class Short(torch.nn.Module):
    def __init__(self, n_tokens):
        super().__init__()
        self.places = torch.nn.Embedding(128, n_tokens)

    def forward(self, inputs, positions):
        places = torch.arange(inputs.shape[1]).expand_as(inputs)
        return self.places(places).flatten(0, 1)[positions]

def own(c):
    return Short(c.n_tokens)
"""
SOURCE = """
class Source:
    def draw(self, batch_size, seq_len, masking_prob, progress): return 5
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

def own(c): return Source()
"""
MODEL_KEY = "model.architecture=my.py:own"
LOSS = "objective.loss=my.py:own"
CALLBACK = "callbacks=[my.py:own]"
CORPUS = "data.corpus=my.py:own"
BATCHES = "data.batches=my.py:own"
WRONG = [
    ("", "model.architecture=nowhere.py:own", "cannot read nowhere.py (No such file)"),
    ("def owm(c): pass", MODEL_KEY, "has no own: did you mean owm?"),
    ("own = 5", MODEL_KEY, "my.py:own: it must be a function or a class, not int"),
    ("\n\ndef own(:", MODEL_KEY, "my.py, line 3: SyntaxError"),
    ("import nothing_of_this_name", CALLBACK, "my.py, line 1: ModuleNotFoundError"),
    ("def own(): pass", MODEL_KEY, "is called with 1 argument"),
    ("def own(c):\n    return 1 / 0", MODEL_KEY, "my.py, line 2: ZeroDivision"),
    ("def own(c): return 3", MODEL_KEY, "must return a torch.nn.Module, not int"),
    ("def own(c): return c.dmodel", MODEL_KEY, "did you mean d_model?"),
    (MODEL, MODEL_KEY, "my.py:own: called with inputs [2, 256] and positions [3], "),
    (SHORT, MODEL_KEY, "but raises my.py, line 11: IndexError"),
    (
        "def own(c): return [3]",
        "training.optimizer=my.py:own",
        "torch.optim.Optimizer or a list",
    ),
    (
        "def own(text): return 3",
        "masking.strategy=my.py:own",
        "must return a Segmenter, not int",
    ),
    ("def own(x, y): return x.mean()", LOSS, "it must return losses [5], not []"),
    ("def own(x, y): return y.tolist()", LOSS, "must return losses [5], not list"),
    ("def own(x, y): return y * 1.0", LOSS, "its losses have no gradient"),
    ("class own:\n    def __init__(self, gamma): pass", LOSS, "called with 0 argument"),
    ("def own(x): return x", LOSS, "is called with 2 argument"),
    (
        "class own:\n    def encode(self, text): pass",
        "data.tokens=my.py:own",
        "a list `tokens`",
    ),
    ("def own(): return 5", CORPUS, "it must return strings"),
    ("def own(): yield 5", CORPUS, "document 1 is not a string"),
    ("own = iter('ab')", CORPUS, "must be a function or a class, not str_"),
    ("def own(c): yield 5", BATCHES, "an object with draw, state_dict, load_state"),
    (SOURCE, BATCHES, "it must be a data.batch.Batch, not int"),
    ("def own(trainer): pass", CALLBACK, "it must be a class"),
    (
        "class own:\n    def evaluted(self): pass",
        CALLBACK,
        "it has none of the hooks begin",
    ),
    ("class own:\n    def stepped(self): pass", CALLBACK, "stepped is called with 3"),
]


@pytest.mark.parametrize(("content", "word", "message"), WRONG)
def test_wrong_code_is_one_line_before_training(
    folder, text_file, refusal, content, word, message
):
    written(folder / "my.py", content)
    config = config_file(folder, {"data.corpus": text_file, "training.max_steps": 1})
    line = refusal(experiment.main, "--config", config, word)
    assert word.partition("=")[0] in line
    assert message in line
    assert not (folder / "logs").exists()


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("model.architecture=my.py:my_model", "attention_mask"),
        ("objective.nsp=true", "segments"),
    ],
)
def test_batches_that_the_model_cannot_read_are_one_line(
    folder, text_file, refusal, key, reason
):
    written(
        folder / "my.py", examples("docs/own_code.md", "class Lines", "class MyModel")
    )
    keys = {
        "data.corpus": text_file,
        "data.batches": "my.py:lines",
        "training.optimizer": "adamw",
    }
    line = refusal(experiment.main, "--config", config_file(folder, keys), key)
    assert "data.batches=" in line
    assert reason in line


def test_packed_windows_need_a_model_that_takes_a_mask(folder, text_file, refusal):
    written(folder / "my.py", examples("docs/own_code.md", "class MyModel"))
    keys = {
        "data.corpus": text_file,
        "data.documents": "lines",
        "training.optimizer": "adamw",
    }
    config = config_file(folder, keys)
    line = refusal(
        experiment.main, "--config", config, "model.architecture=my.py:my_model"
    )
    assert "attention_mask" in line
    assert "data.windows=anywhere" in line


NO_LABELS = """
import torch
from data.batch import IGNORED_LABEL, Batch

class own:
    def __init__(self, c): pass
    def draw(self, batch_size, seq_len, masking_prob, progress):
        inputs = torch.zeros(batch_size, seq_len, dtype=torch.int64)
        positions = torch.arange(3)
        return Batch(inputs, positions, torch.full_like(positions, IGNORED_LABEL))
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
"""
ROW = """
class own:
    def measured(self, trainer, row, evaluation): row["mine"] = {1}
"""
STATE = """
class own:
    name = "counter"
    def state_dict(self): return {"seen": [{1}]}
"""
ENDS = "class own:\n    def begin(self, trainer):\n        1 / 0\n"


@pytest.mark.parametrize(
    ("content", "word", "message"),
    [
        (ENDS, CALLBACK, "my.py, line 3: ZeroDivisionError: division by zero"),
        (ROW, CALLBACK, "my.py:own: mine must be a number or a string, not set"),
        (STATE, CALLBACK, "cannot save state/callbacks/counter/seen/0: it is a set"),
        (NO_LABELS, BATCHES, "my.py:own"),
    ],
)
def test_an_error_in_training_is_one_line_in_the_log_too(
    folder, text_file, monkeypatch, capsys, content, word, message
):
    written(folder / "my.py", content)
    keys = {
        "data.corpus": text_file,
        "training.max_steps": 1,
        "training.evaluations": 1,
    }
    words = ["experiment.py", "--config", config_file(folder, keys), word]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # `run_main` replaces it
    with pytest.raises(SystemExit, match=r"^1$"):
        run_main(experiment.main)

    line = capsys.readouterr().err
    run = only_run(folder / "logs")
    assert line == f"experiment.py: stopped: {run.status()['details']}\n"
    assert message in line
    assert run.log_path.read_text().splitlines()[-1] in line


def test_packages_of_an_environment_and_of_folio_are_not_kept(
    folder, text_file, monkeypatch
):
    """The file may lie in a folder with an environment, such as Folio's own folder."""
    (folder / ".venv").mkdir()
    written(folder / ".venv" / "installed_beside.py", "")
    monkeypatch.syspath_prepend(folder / ".venv")
    own = written(folder / "my.py", f"import installed_beside\n{SAYS}")
    neighbor = written(folder / "words.py", "SAID = 'before'\n")
    run = train(folder, "callbacks=[my.py:Says]", f"data.corpus={text_file}")
    assert set(run.code()) == {str(own), str(neighbor)}

    assert not is_of_user(
        "data.masking.units", ROOT / "data" / "masking" / "units.py", ROOT
    )
    assert is_of_user("words.more", ROOT / "words" / "more" / "__init__.py", ROOT)


def test_a_reference_that_is_no_file_name_stays_a_path():
    with one_line(ConfigError, "found no file"):
        experiment.parse(["data.tokens=C:\\my.py"])
