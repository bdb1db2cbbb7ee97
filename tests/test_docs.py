"""The README and the pages of docs/ agree with the code: links, keys, commands, files, names and examples."""

import importlib.util
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import configs.training
import data.masking.segmenters
import data.masking.strategies
from configs.command_line import SETTINGS, parse, presets
from data.masking.strategies import STRATEGIES
from runs.files import ROOT

PAGES = {path.relative_to(ROOT).as_posix(): path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def found(pattern: str) -> list[tuple[str, ...]]:
    """The page and the groups of every match of `pattern`, without repetitions."""
    matches = ((name, match.groups()) for name, text in TEXTS.items() for match in re.finditer(pattern, text, re.M))
    return sorted({(name, *groups) for name, groups in matches})


def code() -> list[tuple[str, str]]:
    """The page and the text of every line in a code block and of every code span."""
    lines = []
    for name, text in TEXTS.items():
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
        spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
        lines += [(name, line) for block in blocks for line in block.splitlines()]
        lines += [(name, " ".join(span.split())) for span in spans]
    return lines


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "link"), found(r"\]\((?!http)([^)]+)\)"))
def test_every_link_leads_to_a_file_and_a_heading(page, link):
    path, _, anchor = link.partition("#")
    target = (PAGES[page].parent / path).resolve() if path else PAGES[page]
    assert target.exists()
    assert not anchor or anchor in anchors(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("page", "key"),
    # model.d_model=256 and `data.corpus`, but not configs/model.py or data.masking.MLM
    found(r"(?<![\w/.])((?:model|data|masking|training|objective|checkpoint|sample)\.[a-z_]+)\b(?!\.\w|/)"),
)
def test_every_key_exists(page, key):
    is_module = (ROOT / key.replace(".", "/")).with_suffix(".py").exists()
    assert key in SETTINGS or is_module


def test_every_strategy_and_preset_is_described():
    assert {name for name in [*STRATEGIES, "mixture", "labml_nn"] if f"`{name}`" not in TEXTS["docs/masking.md"]} == set()
    assert {name for name in presets() if f"`{name}`" not in TEXTS["README.md"]} == set()


@pytest.mark.parametrize("target", sorted({target for _, target in found(r"make ([a-z][a-z-]+)")}))
def test_every_make_target_exists(target):
    assert f"\n{target}:" in MAKEFILE


def commands(program: str) -> list[str]:
    """What follows `program` in every command that the pages name, without comments."""
    lines = {line.split("    #")[0].strip() for _, line in code()}
    return sorted(line.partition(program)[2].strip() for line in lines if program in line)


@pytest.mark.parametrize("arguments", commands("python experiment.py"))
def test_every_training_command_is_valid(arguments):
    words = shlex.split(arguments.replace("[", "[")) if "[--" not in arguments else []
    for option in ("--resume", "--config"):  # these need a run
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    words = [word.replace("=N", "=0") for word in words if word != "..."]
    parse(words if "--help" not in words else [])


@pytest.mark.parametrize("arguments", [a for a in commands("make train ARGS=") if a])
def test_arguments_passed_through_make_are_valid(arguments):
    parse(shlex.split(shlex.split(arguments.replace("N", "0"))[0]))


@pytest.mark.parametrize("script", ["experiment.py", "evaluate.py", "dashboard.py"])
def test_every_option_of_a_script_exists(script):
    known = (ROOT / script).read_text() + (ROOT / "configs/command_line.py").read_text() + "--help"
    options = re.findall(r"--[a-z-]+", " ".join(commands(f"python {script}")))
    assert [option for option in options if option not in known] == []


@pytest.mark.parametrize(("page", "module"), found(r"python -m ((?:benchmarks|data)[\w.]*)"))
def test_every_module_that_is_run_exists(page, module):
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    options = re.findall(r"--[a-z-]+", " ".join(commands(f"python -m {module}")))
    assert [option for option in options if option not in source] == []


FOLDERS = "benchmarks|board|configs|data|docs|model|notebooks|runs|tests|training"


@pytest.mark.parametrize(("page", "path"), found(rf"(?<![\w/.])((?:{FOLDERS})/(?!cache)[\w./-]*[\w/])"))
def test_every_file_that_is_named_exists(page, path):
    assert (ROOT / path).exists() or (PAGES[page].parent / path).exists()


def test_runs_lists_every_field_and_file_of_a_run(train, corpus_file):
    trained = train(data__corpus=str(corpus_file))
    row = trained.heard.rows[0]
    page = TEXTS["docs/runs.md"]
    assert [name for name in row if f"`{name}`" not in page] == []
    assert [path.name for path in trained.run.path.iterdir() if f"`{path.name}" not in page] == []


# ------------------------------------------------------------------------------------------------ examples


def example(page: str, beginning: str) -> str:
    """The Python block of a page that contains `beginning`."""
    blocks = re.findall(r"^```python\n(.*?)^```", TEXTS[page], re.M | re.S)
    (block,) = [block for block in blocks if beginning in block]
    return block


def test_the_mlm_example_masks_a_tensor():
    names: dict = {}
    exec(example("docs/masking.md", "mlm = MLM("), names)
    assert names["inputs"].shape == names["labels"].shape == (8, 32)
    assert 0.05 < names["selected"].float().mean() < 0.25
    assert torch.equal(names["labels"][names["selected"]], names["x"][names["selected"]])


@pytest.mark.parametrize(
    ("page", "name"), [("README.md", "vowels"), ("docs/masking.md", "vowels"), ("docs/masking.md", "least_selected")]
)
def test_the_strategy_examples_segment_a_text(page, name, sentences, monkeypatch):
    monkeypatch.setattr(data.masking.strategies, "STRATEGIES", dict(STRATEGIES))
    names = {**vars(data.masking.segmenters), **vars(data.masking.strategies)}
    names["strategy"] = lambda function: function
    exec(example(page, f"def {name}("), names)
    segmenter = names[name](sentences).to(torch.device("cpu"))
    offsets = torch.arange(64).view(2, 32)
    units, weights = segmenter(offsets, torch.Generator(), 0.0)
    assert units.shape == weights.shape == offsets.shape
    before = weights.clone()
    segmenter.observe(offsets[0], torch.ones(32))
    segmenter.load_state_dict(segmenter.state_dict())
    _, weights = segmenter(offsets, torch.Generator(), 0.0)
    assert torch.equal(weights, before) == (name == "vowels")


def test_the_optimizer_example_makes_an_optimizer():
    names = {**vars(configs.training), "torch": torch, "option": lambda item: lambda function: function}
    exec(example("README.md", "def my_optimizer("), names)
    (optimizer,) = names["my_optimizer"](SimpleNamespace(network=torch.nn.Linear(2, 2), learning_rate=1e-3))
    assert isinstance(optimizer, torch.optim.Optimizer)


# ------------------------------------------------------------------------------------------------ reading.md


def sections() -> list[tuple[str, str]]:
    """The files that docs/reading.md walks through, each with its section."""
    text = TEXTS.get("docs/reading.md", "")
    parts = re.split(r"^#{3,4} `([\w/.]+\.py)`$", text, flags=re.M)
    return [(path, re.split(r"^#", body, flags=re.M)[0]) for path, body in zip(parts[1::2], parts[2::2], strict=True)]


@pytest.mark.parametrize(("path", "section"), sections())
def test_reading_names_what_stands_in_each_file(path, section):
    source = (ROOT / path).read_text(encoding="utf-8")
    names = re.findall(r"`((?:\w+\.)*[A-Za-z_]\w*)(?:\(\))?`", section)
    assert [name for name in names if name.rpartition(".")[2] not in source] == []


def test_the_core_path_is_as_long_as_reading_and_the_readme_say():
    sizes = re.findall(r"^\| `([\w/.]+\.py)` \| ([\d,]+) \|$", TEXTS["docs/reading.md"], re.M)
    assert [path for path, _ in sizes] == [path for path, _ in sections()]
    lines = sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path, _ in sizes)
    stated = [re.search(r"([\d,]+) lines", TEXTS[page])[1] for page in ("README.md", "docs/reading.md")]
    assert {abs(int(number.replace(",", "")) - lines) <= 0.05 * lines for number in stated} == {True}
